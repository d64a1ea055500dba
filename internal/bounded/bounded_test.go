package bounded_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/bounded"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func TestMain(m *testing.M) { pgleasetest.Main(m) }

// poolOf returns a pool of sessions that have the settings.
func poolOf(t *testing.T, url string, mode pgx.QueryExecMode, settings map[string]string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1 // who asks twice gets the same session, while it lives
	config.ConnConfig.DefaultQueryExecMode = mode
	for name, value := range settings {
		config.ConnConfig.RuntimeParams[name] = value
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// bounds are what a transaction has.
type bounds struct{ idle, unread, isolation string }

// boundsOf looks into a transaction that was begun, and commits it.
func boundsOf(t *testing.T, tx pgx.Tx, err error) (b bounds) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	err = tx.QueryRow(t.Context(), `SELECT current_setting('idle_in_transaction_session_timeout'),
		current_setting('tcp_user_timeout'), current_setting('transaction_isolation')`).Scan(&b.idle, &b.unread, &b.isolation)
	if err := errors.Join(err, tx.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	return b
}

var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// A bound is lowered and never raised, whatever the session reads and shows intervals as, and that
// for the transaction alone.
func TestTheStricterBoundCounts(t *testing.T) {
	t.Parallel()
	const idle, unread = "idle_in_transaction_session_timeout", "tcp_user_timeout"
	url := pgleasetest.URL(t)
	for name, c := range map[string]struct {
		settings           map[string]string
		wantIdle, wantRead string
	}{
		"none":           {nil, "5s", "5000"},
		"stricter":       {map[string]string{idle: "4999", unread: "4999"}, "4999ms", "4999"},
		"looser":         {map[string]string{idle: "5001", unread: "5001"}, "5s", "5000"},
		"the least":      {map[string]string{idle: "1000", unread: "1"}, "1s", "1"},
		"the greatest":   {map[string]string{idle: "2147483647", unread: "2147483647"}, "5s", "5000"},
		"minutes, SQL":   {map[string]string{idle: "90min", "IntervalStyle": "sql_standard", "DateStyle": "SQL, DMY"}, "5s", "5000"},
		"seconds, SQL":   {map[string]string{idle: "3s", "IntervalStyle": "sql_standard", "DateStyle": "German"}, "3s", "5000"},
		"days, ISO":      {map[string]string{idle: "3d", "IntervalStyle": "iso_8601", "TimeZone": "Asia/Kathmandu"}, "5s", "5000"},
		"hours, verbose": {map[string]string{idle: "25h", "IntervalStyle": "postgres_verbose"}, "5s", "5000"},
		"serializable":   {map[string]string{"default_transaction_isolation": "serializable", "default_transaction_deferrable": "on"}, "5s", "5000"},
		"search_path":    {map[string]string{"search_path": "nowhere, pg_catalog"}, "5s", "5000"},
	} {
		for _, mode := range modes {
			t.Run(name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				pool := poolOf(t, url, mode, c.settings)
				plain := func() bounds { tx, err := pool.Begin(t.Context()); return boundsOf(t, tx, err) }
				before := plain()
				tx, err := bounded.Begin(t.Context(), pool, bounded.Own)
				if got := boundsOf(t, tx, err); got != (bounds{c.wantIdle, c.wantRead, "read committed"}) {
					t.Errorf("bounds are %+v, want %s and %s", got, c.wantIdle, c.wantRead)
				}
				if after := plain(); after != before {
					t.Errorf("the session is left with %+v, it had %+v", after, before)
				}
			})
		}
	}
}

// Postgres knows whole milliseconds, and 0 is no bound to it.
func TestTheBoundIsAtLeastAMillisecond(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, pgleasetest.URL(t), pgx.QueryExecModeExec, nil)
	for idle, want := range map[time.Duration]string{
		1500*time.Millisecond + 1: "1501ms", time.Hour: "1h", 1 << 62: "2147483647ms",
	} {
		tx, err := bounded.Begin(t.Context(), pool, idle)
		if got := boundsOf(t, tx, err); got.idle != want {
			t.Errorf("%v: the bound is %s, want %s", idle, got.idle, want)
		}
	}
	for _, idle := range []time.Duration{-time.Second, 0, 1} { // too short to ask from within
		conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := bounded.Begin(t.Context(), conn, idle)
		if err != nil {
			t.Fatal(err)
		}
		until(t, "its session has ended", func() (gone bool, err error) {
			err = pool.QueryRow(t.Context(), "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", conn.PgConn().PID()).Scan(&gone)
			return gone, err
		})
		if err := tx.Commit(t.Context()); !lost(err) || !conn.IsClosed() {
			t.Errorf("%v: got %v; the connection is closed: %v", idle, err, conn.IsClosed())
		}
	}
}

// until asks again until it is so.
func until(t *testing.T, what string, holds func() (bool, error)) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		switch done, err := holds(); {
		case err != nil:
			t.Fatal(err)
		case done:
			return
		case time.Now().After(deadline):
			t.Fatalf("in vain waited until %s", what)
		}
	}
}

// lost tells whether err says that the session has ended, or the connection.
func lost(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "25P03"
	}
	return err != nil
}

// sent writes down which messages a client sends.
func sent(t *testing.T, conn *pgx.Conn, run func()) string {
	t.Helper()
	var trace bytes.Buffer
	conn.PgConn().Frontend().Trace(&trace, pgproto3.TracerOptions{SuppressTimestamps: true})
	run()
	conn.PgConn().Frontend().Untrace()
	var names []string
	for line := range strings.Lines(trace.String()) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "F" {
			names = append(names, fields[1])
		}
	}
	return strings.Join(names, " ")
}

func TestBeginningIsOneMessage(t *testing.T) {
	t.Parallel()
	url := pgleasetest.URL(t)
	for _, mode := range modes {
		conn, err := poolOf(t, url, mode, nil).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var tx pgx.Tx
		if got := sent(t, conn.Conn(), func() { tx, err = bounded.Begin(t.Context(), conn, bounded.Own) }); got != "Query" {
			t.Errorf("%v: sent %q", mode, got)
		}
		boundsOf(t, tx, err)
		conn.Release()
	}
}

// An error that pgx takes for one of a statement, after which it keeps the connection.
func TestABeginThatFailsLeavesNoTransaction(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, pgleasetest.URL(t), pgx.QueryExecModeExec, map[string]string{"search_path": "rogue, pg_catalog"})
	_, err := pool.Exec(t.Context(), `CREATE SCHEMA rogue;
		CREATE FUNCTION rogue.fails(interval, interval) RETURNS boolean LANGUAGE sql AS 'SELECT 1 / 0 = 1';
		CREATE OPERATOR rogue.< (FUNCTION = rogue.fails, LEFTARG = interval, RIGHTARG = interval)`)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	var pg *pgconn.PgError
	if _, err := bounded.Begin(t.Context(), conn, bounded.Own); !errors.As(err, &pg) || pg.Code != "22012" {
		t.Errorf("got %v", err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT 1"); err != nil {
		t.Errorf("the next statement: %v", err)
	}
}
