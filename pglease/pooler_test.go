package pglease_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pgbouncer"
	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/internal/authority"
)

// poolSize is how many sessions of the server a pooler shares out.
const poolSize = 4

// pooled starts a server with a pgbouncer before it. The pool is not through the pooler.
func pooled(t *testing.T, mode string, settings ...string) (url string, direct *pgxpool.Pool) {
	t.Helper()
	server, direct := ownServer(t, postgres.Options{})
	pooler, err := pgbouncer.Start(t.Context(), server, mode, settings...)
	if errors.Is(err, pgbouncer.ErrNotFound) {
		needs(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, pooler)
	return pooler.URL(), direct
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestTransactionPooling_O3: in the modes of pgx that keep nothing in a session.
func TestTransactionPooling_O3(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{
		"sessions are shared as they are":      nil,
		"sessions are reset each time":         {"server_reset_query_always = 1"},
		"sessions are shared in another order": {"server_round_robin = 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, direct := pooled(t, pgbouncer.Transaction, append(settings, "default_pool_size = 4")...)
			for _, mode := range []string{"exec", "simple_protocol", "cache_describe"} {
				transactionPooling(t, pools.Open(t, url+"&default_query_exec_mode="+mode), direct)
			}
		})
	}
}

func transactionPooling(t *testing.T, pool, direct *pgxpool.Pool) {
	t.Helper()
	var log lines
	events := wholeLife(t, pool, pglease.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	polling, _ := events.of(pglease.EventPollOnly)
	if len(polling) != 1 || polling[0].Err == nil {
		t.Errorf("said %d times that it only polls: %+v", len(polling), polling)
	}
	if text := log.String(); strings.Count(text, "no listening session") != 1 {
		t.Errorf("logged:\n%s", text)
	}
	wantNothingLeft(t, pool, direct)
}

// wantNothingLeft looks into each session of the server that the pooler shares out, by holding all.
func wantNothingLeft(t *testing.T, pool, direct *pgxpool.Pool) {
	t.Helper()
	var held []pgx.Tx
	defer func() {
		for _, tx := range held {
			_ = tx.Rollback(t.Context())
		}
	}()
	for range poolSize {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, tx)
		rows, err := tx.Query(t.Context(), "SELECT pg_listening_channels()")
		if err != nil {
			t.Fatal(err)
		}
		channels, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(channels) > 0 {
			t.Errorf("another client listens to %v, %v", channels, err)
		}
	}
	var locks int
	if err := direct.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&locks); err != nil || locks > 0 {
		t.Errorf("%d advisory locks, %v", locks, err)
	}
}

// TestTwoSessionsInTurn_O3: a pooler that has two sessions, and gives out the one and then the other, is found out: by
// two statements of one connection, as every second one falls on the same session.
func TestTwoSessionsInTurn_O3(t *testing.T) {
	t.Parallel()
	url, _ := pooled(t, pgbouncer.Transaction, "server_round_robin = 1", "default_pool_size = 2")
	pool := pools.Open(t, url+"&default_query_exec_mode=exec")
	var both [2]pgx.Tx
	for i := range both {
		var err error
		if both[i], err = pool.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := both[i].Exec(t.Context(), "SELECT 1"); err != nil {
			t.Fatal(err)
		}
	}
	for _, tx := range both {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s, err := schema.New("")
	if err != nil {
		t.Fatal(err)
	}
	auth := authority.NewPostgres(pool, s)
	t.Cleanup(func() { auth.Close(context.WithoutCancel(t.Context())) })
	for range 4 {
		session, err := auth.Listen(t.Context(), authority.ID{0: 1})
		if !errors.Is(err, authority.ErrPooled) {
			t.Errorf("%v, %v", session, err)
		}
	}
}

// TestSessionPooling_O3: a session is the client's own, and rings are heard.
func TestSessionPooling_O3(t *testing.T) {
	t.Parallel()
	url, direct := pooled(t, pgbouncer.Session, "default_pool_size = 50")
	pool := pools.Open(t, url)
	events := wholeLife(t, pool, pglease.Config{})
	if polling, _ := events.of(pglease.EventPollOnly); len(polling) > 0 {
		t.Errorf("polls: %+v", polling)
	}
	var listening int
	err := direct.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&listening)
	if err != nil || listening != 1 {
		t.Errorf("%d sessions listen, %v", listening, err)
	}
}
