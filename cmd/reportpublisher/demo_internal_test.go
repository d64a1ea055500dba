//go:build unix

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/cmd/reportpublisher/internal/demo"
)

func TestDemoFenced(t *testing.T) {
	t.Parallel()
	o, d := playOn(t)
	if !o.Fenced || o.W1Result != "stale_owner" || o.FinalBodyBy != "W2" || !o.InvariantHeld {
		t.Errorf("outcome %+v", o)
	}
	d.matches(t, o)
	if d.refused["W1"] != o.W1Fence {
		t.Errorf("the store refused %v, want W1 with fence %d", d.refused, o.W1Fence)
	}
}

func TestDemoUnfenced(t *testing.T) {
	t.Parallel()
	o, d := playOn(t, "--unfenced")
	if o.Fenced || o.W1Result != "applied" || o.FinalBodyBy != "W1" || o.InvariantHeld {
		t.Errorf("outcome %+v", o)
	}
	d.matches(t, o)
	if len(d.refused) != 0 {
		t.Errorf("a plain UPDATE was refused: %v", d.refused)
	}
}

// playOn runs the demo on a database of the test's own and returns what it says and what the
// database says.
func playOn(t *testing.T, flags ...string) (demo.Outcome, left) {
	t.Helper()
	url, pool := place(t)
	r := call(t.Context(), nil, append([]string{"demo", "--json", "--keep", "--database-url", url}, flags...)...)
	if r.Code != exitOK {
		t.Fatalf("exit code %d, story:\n%s", r.Code, r.Stderr)
	}
	for line := range strings.Lines(r.Stderr) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("wider than 80 columns: %s", line)
		}
	}
	var o demo.Outcome
	if strings.Count(r.Stdout, "\n") != 1 {
		t.Errorf("more than one object: %s", r.Stdout)
	}
	if err := json.Unmarshal([]byte(r.Stdout), &o); err != nil {
		t.Fatal(err)
	}
	return o, whatIsLeft(t, pool)
}

// left is what the demo left in the database, read with statements that share nothing with it.
type left struct {
	tenures map[string]int64 // owner and fence, of leases that are over
	ended   map[string]string
	refused map[string]int64
	history []demo.Version
	body    string // of the report
	rows    int    // in the tables that are not the demo's
}

func whatIsLeft(t *testing.T, pool *pgxpool.Pool) left {
	t.Helper()
	var schema string
	d := left{tenures: map[string]int64{}, ended: map[string]string{}, refused: map[string]int64{}}
	query(t, pool, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'reportpublisher_demo_%'", func(row pgx.Rows) error {
		return row.Scan(&schema)
	})
	query(t, pool, "SELECT owner_id, fence, ended FROM "+schema+".lease_history WHERE fence IS NOT NULL", func(row pgx.Rows) error {
		var owner, ended string
		var fence int64
		err := row.Scan(&owner, &fence, &ended)
		d.tenures[owner], d.ended[owner] = fence, ended
		return err
	})
	query(t, pool, "SELECT owner_id, fence FROM "+schema+".report_rejection", func(row pgx.Rows) error {
		var owner string
		var fence int64
		err := row.Scan(&owner, &fence)
		d.refused[owner] = fence
		return err
	})
	query(t, pool, "SELECT version, fence, owner_id FROM "+schema+".report_version ORDER BY version", func(row pgx.Rows) error {
		var v demo.Version
		err := row.Scan(&v.Version, &v.Fence, &v.By)
		d.history = append(d.history, v)
		return err
	})
	query(t, pool, "SELECT convert_from(body, 'UTF8') FROM "+schema+".reports", func(row pgx.Rows) error { return row.Scan(&d.body) })
	query(t, pool, "SELECT (SELECT count(*) FROM pglease.resource_lease) + (SELECT count(*) FROM pglease.reports)", func(row pgx.Rows) error {
		return row.Scan(&d.rows)
	})
	return d
}

func query(t *testing.T, pool *pgxpool.Pool, sql string, scan func(pgx.Rows) error) {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// matches compares the outcome that was printed with the database.
func (d left) matches(t *testing.T, o demo.Outcome) {
	t.Helper()
	if d.tenures["W1"] != o.W1Fence || d.tenures["W2"] != o.W2Fence || o.W1Fence >= o.W2Fence {
		t.Errorf("fences %d and %d, the authority has %v", o.W1Fence, o.W2Fence, d.tenures)
	}
	if d.ended["W1"] != "expired" || d.ended["W2"] != "released" {
		t.Errorf("tenures ended %v, want W1's expired and W2's released", d.ended)
	}
	if !slices.Equal(d.history, o.History) {
		t.Errorf("history %v, the report has %v", o.History, d.history)
	}
	if last := d.history[len(d.history)-1]; last.By != o.FinalBodyBy {
		t.Errorf("the report is said to be by %s, its last version is by %s", o.FinalBodyBy, last.By)
	}
	// W1 never read the third store.
	if strings.Contains(d.body, ",station,") != (o.FinalBodyBy == "W2") {
		t.Errorf("the report is said to be by %s:\n%s", o.FinalBodyBy, d.body)
	}
	if d.rows != 0 {
		t.Errorf("the demo wrote %d rows into tables that are not its own", d.rows)
	}
}

// Asked for nothing, the demo finds or starts its server, and keeps its promise about the time.
func TestDemoAlone(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "demo", "--json")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, urlVariable+"=") || strings.HasPrefix(v, "DATABASE_URL=")
	})
	story := new(strings.Builder)
	cmd.Stderr = story
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v, story:\n%s", err, story)
	}
	var o demo.Outcome
	if err := json.Unmarshal(out, &o); err != nil || o.AsPromised() != nil {
		t.Errorf("outcome %+v, %v", o, err)
	}
}
