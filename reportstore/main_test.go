package reportstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
	"github.com/pglease/pglease/reportstore"
)

func TestMain(m *testing.M) { pgleasetest.Main(m) }

const july = "report/2026-07"

// tokenOf makes a token of any resource; lease tells leases apart.
func tokenOf(tb testing.TB, resource string, number, lease int) fence.Token {
	tb.Helper()
	token, err := fence.Parse(fmt.Sprintf("%d:0197a3c2-6c1e-7d6f-8f5b-%012x:%s", number, lease, resource))
	if err != nil {
		tb.Fatal(err)
	}
	return token
}

// token makes the token of july with a fence and the lease that goes with it.
func token(tb testing.TB, number int) fence.Token {
	tb.Helper()
	return tokenOf(tb, july, number, number)
}

func newStore(tb testing.TB, pool *pgxpool.Pool) *reportstore.Store {
	tb.Helper()
	store, err := reportstore.New(pool, reportstore.Config{Owner: "tester"})
	if err != nil {
		tb.Fatal(err)
	}
	return store
}

func setUp(tb testing.TB) (*pgxpool.Pool, *reportstore.Store) {
	tb.Helper()
	pool := pgleasetest.Pool(tb, migrations.Report)
	return pool, newStore(tb, pool)
}

// publish publishes text as july and fails the test unless that makes the version.
func publish(tb testing.TB, store *reportstore.Store, by fence.Token, text string, expected, version int64) reportstore.Publication {
	tb.Helper()
	done, err := store.Publish(tb.Context(), by, reportstore.Report{
		ID: by.Resource(), Body: []byte(text), ExpectedVersion: expected, Owner: fmt.Sprintf("W%d", by.Fence()),
	})
	if err != nil {
		tb.Fatal(err)
	}
	if done.Version != version || done.PublishedAt.IsZero() {
		tb.Fatalf("publish %q: got %+v, want version %d", text, done, version)
	}
	return done
}

// holds fails the test unless july has the content, version and watermark.
func holds(tb testing.TB, store *reportstore.Store, text string, version, greatest int64) {
	tb.Helper()
	got, err := store.Read(tb.Context(), july)
	if err != nil {
		tb.Fatal(err)
	}
	if !bytes.Equal(got.Body, []byte(text)) || got.Version != version || got.GreatestFence != greatest {
		tb.Fatalf("report is %q, version %d, watermark %d; want %q, %d, %d", got.Body, got.Version, got.GreatestFence, text, version, greatest)
	}
}

// rejected fails the test unless just so many writes of july are on record as refused.
func rejected(tb testing.TB, store *reportstore.Store, want int) []reportstore.Rejection {
	tb.Helper()
	got, err := store.Rejections(tb.Context(), july)
	if err != nil {
		tb.Fatal(err)
	}
	if len(got) != want {
		tb.Fatalf("%d rejections on record, want %d: %+v", len(got), want, got)
	}
	return got
}

func history(tb testing.TB, store *reportstore.Store) []reportstore.Version {
	tb.Helper()
	got, err := store.History(tb.Context(), july)
	if err != nil {
		tb.Fatal(err)
	}
	return got
}

func mustExec(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	tb.Helper()
	if _, err := pool.Exec(tb.Context(), sql, args...); err != nil {
		tb.Fatal(err)
	}
}

// refused fails the test unless the statement fails with the code.
func refused(tb testing.TB, pool *pgxpool.Pool, code, sql string) {
	tb.Helper()
	_, err := pool.Exec(tb.Context(), sql)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != code {
		tb.Errorf("%s: got %v, want SQLSTATE %s", sql, err, code)
	}
}

// withSettings returns a pool to a migrated database whose sessions have the settings.
func withSettings(tb testing.TB, settings map[string]string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	return pools.Open(tb, pgleasetest.URL(tb, migrations.Report), append(change, pools.Settings(settings))...)
}
