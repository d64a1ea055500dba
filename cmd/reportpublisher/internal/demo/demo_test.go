//go:build unix

package demo_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/cmd/reportpublisher/internal/demo"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func TestMain(m *testing.M) { pgleasetest.Main(m) }

// A worker that dies ends the demo with what it said last, and nothing is left in the database.
func TestPlayTellsWhyAWorkerDied(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, want string }{
		"dies":        {"echo no memory >&2; exit 3", `W1 ended before "paused": no memory`},
		"is silent":   {"exit 3", `W1 ended before "paused": exit status 3`},
		"fails":       {`echo '{"event":"failed","text":"no database"}'`, "W1: no database"},
		"is confused": {`echo '{"event":"result"}'; exec cat`, `W1 said "result" where "paused" was due`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgleasetest.URL(t)
			options := demo.Options{
				URL: url, TTL: time.Second,
				Command: func(demo.Worker) *exec.Cmd { return exec.Command("sh", "-c", c.script) },
			}
			var out strings.Builder
			outcome, err := options.Play(t.Context(), demo.NewStory(&out))
			if err == nil || err.Error() != c.want {
				t.Errorf("Play = %+v, %v, want the error %s\n%s", outcome, err, c.want, &out)
			}
			for line := range strings.Lines(out.String()) {
				if utf8.RuneCountInString(line) > 81 {
					t.Errorf("wider than 80 columns: %s", line)
				}
			}
			if left := schemas(t, url); left != 0 {
				t.Errorf("%d schemas are left", left)
			}
		})
	}
}

func TestOutcomeAsPromised(t *testing.T) {
	t.Parallel()
	fenced := demo.Outcome{Fenced: true, W1Fence: 41, W2Fence: 42, W1Result: "stale_owner", FinalBodyBy: "W2", InvariantHeld: true}
	unfenced := demo.Outcome{W1Fence: 41, W2Fence: 42, W1Result: "applied", FinalBodyBy: "W1"}
	for _, o := range []demo.Outcome{fenced, unfenced} {
		if err := o.AsPromised(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
		for name, spoil := range map[string]func(*demo.Outcome){
			"the other mode": func(o *demo.Outcome) { o.Fenced = !o.Fenced },
			"fences":         func(o *demo.Outcome) { o.W1Fence = o.W2Fence },
			"no write":       func(o *demo.Outcome) { o.W1Result = "" },
			"nobody's body":  func(o *demo.Outcome) { o.FinalBodyBy = "" },
			"invariant":      func(o *demo.Outcome) { o.InvariantHeld = !o.InvariantHeld },
		} {
			spoilt := o
			spoil(&spoilt)
			if spoilt.AsPromised() == nil {
				t.Errorf("%s spoilt, and as promised: %+v", name, spoilt)
			}
		}
	}
}

// schemas counts the demo's schemas in a database.
func schemas(t *testing.T, url string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	err = conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'reportpublisher_demo_%'").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
