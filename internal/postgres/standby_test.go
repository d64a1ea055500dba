package postgres_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/postgres"
)

// value asks for one value, as text.
func value(t *testing.T, conn *pgx.Conn, sql string) (text string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), "SELECT ("+sql+")::text").Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

func TestStandbyFollowsAndTakesOver(t *testing.T) {
	t.Parallel()
	primary := start(t, postgres.Options{Durable: true})
	standby, err := primary.Standby(t.Context(), postgres.Options{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	conn := connect(t, primary.URL())
	if _, err := conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 1 AS n"); err != nil {
		t.Fatal(err)
	}
	copied := connect(t, standby.URL())
	for value(t, copied, "SELECT count(*) FROM pg_class WHERE relname = 'kept'") == "0" {
		time.Sleep(time.Millisecond)
	}
	if value(t, copied, "SELECT pg_is_in_recovery()") != "true" {
		t.Error("the standby is no standby")
	}
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := copied.Exec(t.Context(), "INSERT INTO kept VALUES (2)"); err != nil {
		t.Errorf("after the promotion: %v", err)
	}
	if file := value(t, copied, "SELECT pg_walfile_name(pg_current_wal_lsn())"); !strings.HasPrefix(file, "00000002") {
		t.Errorf("it writes to %s", file)
	}
	if err := standby.Promote(t.Context()); err == nil {
		t.Error("a primary was promoted")
	}
}

func TestTheServersEnvironment(t *testing.T) {
	t.Parallel()
	s := start(t, postgres.Options{Env: []string{"PGLEASE_TEST_WORD=frog"}})
	conn := connect(t, s.URL())
	if _, err := conn.Exec(t.Context(), `CREATE TABLE out (line text); COPY out FROM PROGRAM 'echo $PGLEASE_TEST_WORD'`); err != nil {
		t.Fatal(err)
	}
	if got := value(t, conn, "SELECT line FROM out"); got != "frog" {
		t.Errorf("the server's environment has %q", got)
	}
}

func TestACompanionEndsWithUs(t *testing.T) {
	t.Parallel()
	s := start(t, postgres.Options{})
	c, err := s.Accompany("cat")
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(c.Dir()) != filepath.Dir(s.DataDir()) {
		t.Errorf("it lies in %s", c.Dir())
	}
	path, err := c.WriteFile("text", "frog")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context(), "/bin/cat", path); err != nil {
		t.Fatal(err)
	}
	<-c.Ended()
	if c.Log() != "frog" {
		t.Errorf("it printed %q", c.Log())
	}
	if err := c.Run(t.Context(), "/bin/sleep", "100"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Kill(); err != nil {
			t.Error(err)
		}
	}
}
