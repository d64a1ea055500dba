package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pglease/pglease/cmd/peerbench/internal/contest"
)

// asCommand makes the test's program the command.
const asCommand = "PEERBENCH_TEST_AS_COMMAND"

// The holder that takeovers start is this program; in a test that is the test's.
func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" || (len(os.Args) > 1 && os.Args[1] == contest.HoldCommand) {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// measured runs the command and returns its result.
func measured(t *testing.T, args ...string) contest.Result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), append(args, "--json"), nil, &stdout, &stderr); code != exitDone {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	if strings.Contains(stderr.String(), "1 rounds") {
		t.Errorf("it says %s", &stderr)
	}
	var result contest.Result
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
		t.Fatal(err)
	}
	return result
}

// What is fast or slow is not for a test to say: the machine is shared.
func TestEveryPeerDoesEveryWork(t *testing.T) {
	t.Parallel()
	r := measured(t, "--for", "100ms", "--rounds", "1", "--clients", "2", "--contenders", "3", "--leases", "20", "--work", "pairs,handover,renew,jobs")
	if len(r.Missing) > 0 {
		t.Errorf("missing: %v", r.Missing)
	}
	got := map[string]map[string]contest.Cell{}
	for _, c := range r.Cells {
		if got[c.Work] == nil {
			got[c.Work] = map[string]contest.Cell{}
		}
		got[c.Work][c.Peer] = c
	}
	locks := []string{"limit", "pglease", "pglease-nohistory", "etcd", "zookeeper", "redsync", "pglock", "advisory"}
	for work, peers := range map[string][]string{
		contest.Pairs: locks, contest.HandOver: append(slices.Clone(locks), "pglease-directwake", "notify"),
		contest.Renew: {"limit", "pglease", "pglease-nohistory", "etcd", "redsync", "pglock"},
	} {
		for _, peer := range peers {
			c, ok := got[work][peer]
			// Who polls may not be served in so short a time: pglock waits for a whole lease's duration
			// between two looks, and redsync for up to a quarter of a second.
			polls := peer == "pglock" || peer == "redsync"
			if !ok || c.Requests == nil || (c.Rate <= 0 && (work != contest.HandOver || !polls)) {
				t.Errorf("%s of %s: %+v", work, peer, c)
			}
		}
		if len(got[work]) != len(peers) {
			t.Errorf("%s has %d lines, want %d", work, len(got[work]), len(peers))
		}
	}
	if len(got[contest.Jobs]) != 9 {
		t.Errorf("jobs has %d lines, want 9", len(got[contest.Jobs]))
	}
	for title, c := range got[contest.Jobs] {
		if c.Rate <= 0 {
			t.Errorf("jobs: %s did none", title)
		}
	}
	checkPrinted(t, r)
}

// checkPrinted looks for each line and each fact in both forms.
func checkPrinted(t *testing.T, r contest.Result) {
	t.Helper()
	var text, markdown strings.Builder
	if err := r.Text(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.Markdown(&markdown, 3); err != nil {
		t.Fatal(err)
	}
	for _, printed := range []string{text.String(), markdown.String()} {
		if !strings.Contains(printed, ". 1 round of 100 ms each") {
			t.Errorf("it does not say how it was measured:\n%s", printed)
		}
		for _, c := range r.Cells {
			if !strings.Contains(printed, c.Title) {
				t.Errorf("there is no line of %s", c.Title)
			}
		}
		for _, p := range r.Peers {
			if p.Lacks == "" || !strings.Contains(printed, p.Lacks) || !strings.Contains(printed, p.Order) {
				t.Errorf("nothing says what %s does not do", p.Name)
			}
		}
	}
}

// A killed holder's lock goes to the waiter, of each peer, and not before its time.
func TestTakeoverOfEachPeer(t *testing.T) {
	t.Parallel()
	// The TTL is so long that a holder on a busy machine renews in time.
	r := measured(t, "--work", "takeover", "--ttl", "6s", "--rounds", "1", "--only", "pglease,pglease-directwake,etcd,zookeeper,redsync,pglock,advisory")
	if len(r.Takeovers) != 6 {
		t.Fatalf("%d takeovers, want 6", len(r.Takeovers))
	}
	for _, k := range r.Takeovers {
		// A renewal is at most a third of the TTL old; pglock and ZooKeeper look now and then.
		if k.Peer != "advisory" && k.Least < k.TTL/4 {
			t.Errorf("%s was taken over after %.0f ms of a TTL of %.0f ms: the holder had not been renewing", k.Peer, k.Least, k.TTL)
		}
	}
}

// A peer whose server is not there is told and never left out silently; the others are measured.
func TestMissingServersAreTold(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"--only", "etcd,zookeeper,redsync,advisory", "--work", "pairs", "--clients", "1", "--rounds", "1", "--for", "20ms"}, nil, &stdout, &stderr)
	if code != exitError {
		t.Errorf("exit code %d", code)
	}
	for _, debian := range []string{"etcd-server", "zookeeper", "redis-server"} {
		line := "apt-get install " + debian
		if !strings.Contains(stderr.String(), line) || !strings.Contains(stdout.String(), line) {
			t.Errorf("nothing says %q:\n%s\n%s", line, &stderr, &stdout)
		}
	}
	if !strings.Contains(stdout.String(), "advisory locks, a session each") {
		t.Errorf("what is there was not measured:\n%s", &stdout)
	}
}

func TestWrongCalls(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--only", "nobody"},
		{"--work", "nothing"},
		{"--clients", "0"},
		{"--clients", "65"},
		{"--rounds", "0"},
		{"--for", "1ns"},
		{"--ttl", "1500ms"},
		{"nonsense"},
		{"extra", "words"},
		{"--no-such-flag"},
		{"growth", "--work", "nothing"},
		{"growth", "--history", "1"},
		{"docs", "--part", "nothing"},
		{"docs", "--curves", "nothing"},
		{"growth", "--snapshot", "1s"},
		{"profile", "--work", "nothing"},
		{"profile", "--rounds", "0"},
		{"profile", "extra"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, nil, &stdout, &stderr); code != exitUsage || stderr.Len() == 0 || stdout.Len() > 0 {
			t.Errorf("%q: exit code %d, %q, %q", args, code, &stdout, &stderr)
		}
	}
}

// The page is measured again without losing what is around the marks.
func TestDocsPutsAllPartsIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	document := filepath.Join(dir, "performance.md")
	if err := os.WriteFile(document, page, 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	args := []string{
		"docs", "--dir", dir, "--only", "pglease,pglease-directwake,advisory", "--work", "pairs,handover", "--clients", "1", "--contenders", "2", "--rounds", "1", "--for", "50ms",
		"--resources", "1000", "--waiters", "3", "--history", "2000", "--many-leases", "20", "--snapshot", "1s",
	}
	if code := run(t.Context(), args, nil, &stdout, &stderr); code != exitDone {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	written, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## How to read it", "## Plans", "| advisory locks, a session each |", "| pglease, direct wake |", "as many connections as processes, in turn.", ". 1 round of 50 ms each", "| UPDATE of a row by its key |", "![Hand-over against"} {
		if !strings.Contains(string(written), want) {
			t.Errorf("the page lacks %q:\n%s", want, written)
		}
	}
	for _, name := range []string{"resources", "waiters", "leases", "snapshot", "history"} {
		checkCurve(t, filepath.Join(dir, "performance", name))
	}

	// One curve is drawn anew, and the others stay.
	args = []string{"docs", "--dir", dir, "--part", "growth", "--curves", "leases", "--for", "20ms", "--many-leases", "10"}
	if code := run(t.Context(), args, nil, &stdout, &stderr); code != exitDone {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	again, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	const heading, next = "### Renewals against", "### Pairs of 8 clients on a resource each"
	if sectionsBut(t, written, heading, next) != sectionsBut(t, again, heading, next) || bytes.Equal(written, again) {
		t.Errorf("the page was\n%s\nand is\n%s", written, again)
	}
}

// sectionsBut returns a page without what is between two headings.
func sectionsBut(t *testing.T, page []byte, heading, next string) string {
	t.Helper()
	before, rest, found := strings.Cut(string(page), heading)
	_, after, ended := strings.Cut(rest, next)
	if !found || !ended {
		t.Fatalf("no %q before %q in\n%s", heading, next, page)
	}
	return before + after
}

func checkCurve(t *testing.T, path string) {
	t.Helper()
	picture, err := os.ReadFile(path + ".svg")
	if err != nil || !bytes.HasPrefix(picture, []byte("<svg ")) {
		t.Errorf("%s.svg: %v", path, err)
	}
	numbers, err := os.ReadFile(path + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Points []struct {
			Rate  float64 `json:"rate"`
			Limit float64 `json:"limit_rate"`
		} `json:"points"`
	}
	if err := json.Unmarshal(numbers, &c); err != nil || len(c.Points) == 0 {
		t.Fatalf("%s.json: %d points, %v", path, len(c.Points), err)
	}
	for _, p := range c.Points {
		if p.Rate <= 0 || p.Limit <= 0 {
			t.Errorf("%s.json has a point where nothing was done: %+v", path, p)
		}
	}
}
