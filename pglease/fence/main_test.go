package fence_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// These make the test binary an owner that stops in the middle of its command.
const (
	stopperURL   = "PGLEASE_TEST_FENCE_STOPPER_URL"
	stopperToken = "PGLEASE_TEST_FENCE_STOPPER_TOKEN"
)

// stopInApply is what it then does, where the system knows how to stop a process.
var stopInApply func(url, owner string) error

func TestMain(m *testing.M) {
	if url := os.Getenv(stopperURL); url != "" {
		if err := stopInApply(url, os.Getenv(stopperToken)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	pgleasetest.Main(m)
}

const pump = "device/pump-7"

// tokenOf makes a token of any resource; lease tells leases apart.
func tokenOf(tb testing.TB, resource string, number, lease int) fence.Token {
	tb.Helper()
	token, err := fence.Parse(fmt.Sprintf("%d:0197a3c2-6c1e-7d6f-8f5b-%012x:%s", number, lease, resource))
	if err != nil {
		tb.Fatal(err)
	}
	return token
}

// token makes the token of pump with a fence and the lease that goes with it.
func token(tb testing.TB, number int) fence.Token {
	tb.Helper()
	return tokenOf(tb, pump, number, number)
}

func newWatermarks(tb testing.TB) *fence.Watermarks {
	tb.Helper()
	w, err := fence.NewWatermarks(fence.Config{Owner: "tester"})
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

func setUp(tb testing.TB) (*pgxpool.Pool, *fence.Watermarks) {
	tb.Helper()
	return pgleasetest.Pool(tb, migrations.Fence), newWatermarks(tb)
}

func mustExec(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	tb.Helper()
	if _, err := pool.Exec(tb.Context(), sql, args...); err != nil {
		tb.Fatal(err)
	}
}

func count(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	tb.Helper()
	if err := pool.QueryRow(tb.Context(), sql, args...).Scan(&n); err != nil {
		tb.Fatal(err)
	}
	return n
}

// code returns the SQLSTATE of an error, empty where it is not the database's.
func code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// refused fails the test unless the statement fails with the code.
func refused(tb testing.TB, pool *pgxpool.Pool, want, sql string, args ...any) {
	tb.Helper()
	if _, err := pool.Exec(tb.Context(), sql, args...); code(err) != want {
		tb.Errorf("%s: got %v, want SQLSTATE %s", sql, err, want)
	}
}

// stands fails the test unless the watermark of pump is this.
func stands(tb testing.TB, pool *pgxpool.Pool, w *fence.Watermarks, number, version, sequence int64) {
	tb.Helper()
	got, err := w.Watermark(tb.Context(), pool, pump)
	if err != nil {
		tb.Fatal(err)
	}
	if got.Fence != number || got.Version != version || got.LastSequence != sequence || got.Since.IsZero() {
		tb.Fatalf("watermark is %+v, want fence %d, version %d, last sequence %d", got, number, version, sequence)
	}
}

// rejected fails the test unless just so many writes of a resource are on record as refused.
func rejected(tb testing.TB, pool *pgxpool.Pool, w *fence.Watermarks, resource string, want int) []fence.Rejection {
	tb.Helper()
	got, err := w.Rejections(tb.Context(), pool, resource)
	if err != nil {
		tb.Fatal(err)
	}
	if len(got) != want {
		tb.Fatalf("%d rejections on record, want %d: %+v", len(got), want, got)
	}
	return got
}
