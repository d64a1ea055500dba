//go:build unix

// Package servers makes pairs of Postgres servers for tests: a primary and a standby that was copied
// from it and follows it, to be cut off, killed and promoted.
package servers

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/migrations"
)

// A Pair is a primary and a standby that follows it.
type Pair struct {
	Primary, Standby *postgres.Server

	// URL names both and leads to whichever takes writes, also after a failover.
	URL string
}

// Own starts a server for one test, with the tables of the leases, and stops it at the end of the test.
func Own(tb testing.TB, options postgres.Options) *postgres.Server {
	tb.Helper()
	server, err := postgres.Start(tb.Context(), options)
	if err != nil {
		tb.Fatal(err)
	}
	stopAtEnd(tb, server)
	pool := Pool(tb, server.URL())
	defer pool.Close()
	if err := migrations.Up(tb.Context(), pool, migrations.Lease); err != nil {
		tb.Fatal(err)
	}
	return server
}

// Needs ends a test whose need is not there: it is skipped, or fails where PGLEASE_REQUIRE_ALL says that
// nothing may be missing.
func Needs(tb testing.TB, missing any) {
	tb.Helper()
	if os.Getenv("PGLEASE_REQUIRE_ALL") != "" {
		tb.Fatal(missing)
	}
	tb.Skip(missing)
}

// NewPair starts both. They keep what they committed when they are killed.
func NewPair(tb testing.TB) *Pair {
	tb.Helper()
	return NewPairWith(tb, postgres.Options{Durable: true}, postgres.Options{Durable: true})
}

// NewPairWith starts both with options.
func NewPairWith(tb testing.TB, primary, standby postgres.Options) *Pair {
	tb.Helper()
	first := Own(tb, primary)
	p := &Pair{Primary: first, Standby: Follow(tb, first, standby)}
	p.URL = p.both(tb)
	return p
}

func (p *Pair) both(tb testing.TB) string {
	tb.Helper()
	first, second := host(tb, p.Primary.URL()), host(tb, p.Standby.URL())
	return strings.Replace(p.Primary.URL(), first, first+","+second, 1) + "&target_session_attrs=read-write&connect_timeout=2"
}

// Stop ends both, before the test's end does.
func (p *Pair) Stop(tb testing.TB) {
	tb.Helper()
	for _, s := range []*postgres.Server{p.Primary, p.Standby} {
		if err := s.Stop(); err != nil {
			tb.Error(err)
		}
	}
}

// Faketime is the library that sets a server's clock.
func Faketime(tb testing.TB) string {
	tb.Helper()
	libraries, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if len(libraries) == 0 {
		Needs(tb, "no libfaketime found; on Debian: apt-get install libfaketime")
	}
	return libraries[0]
}

// Follow starts a standby of a server.
func Follow(tb testing.TB, primary *postgres.Server, options postgres.Options) *postgres.Server {
	tb.Helper()
	standby, err := primary.Standby(tb.Context(), options)
	if err != nil {
		tb.Fatal(err)
	}
	stopAtEnd(tb, standby)
	return standby
}

func stopAtEnd(tb testing.TB, s *postgres.Server) {
	tb.Helper()
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Error(err)
		}
	})
}

func host(tb testing.TB, text string) string {
	tb.Helper()
	u, err := url.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	return u.Host
}

// Pool returns a pool that is closed at the end of the test.
func Pool(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(tb.Context(), url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// Replicated is Caught of both.
func (p *Pair) Replicated(tb testing.TB) {
	tb.Helper()
	Caught(tb, p.Primary, p.Standby)
}

// Caught returns when a standby has replayed all that its primary has committed, also what did not wait for the
// disk: the commit of a message does, and so for all before it.
func Caught(tb testing.TB, primary, standby *postgres.Server) {
	tb.Helper()
	written := Value[string](tb, primary.URL(), "SELECT pg_logical_emit_message(true, '', '')::text")
	for !Value[bool](tb, standby.URL(), "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", written) {
		pause(tb)
	}
}

// CutOff stops the process that sends to the standby: what is committed from now on stays here. To stop
// the receiver would not do, since what was sent lies in the kernel's buffers.
func (p *Pair) CutOff(tb testing.TB) {
	tb.Helper()
	CutOff(tb, p.Primary.URL())
}

// CutOff does so to the standby of the primary at the URL.
func CutOff(tb testing.TB, primary string) {
	tb.Helper()
	sender := Value[int](tb, primary, "SELECT coalesce(min(pid), 0) FROM pg_stat_replication WHERE state = 'streaming'")
	if sender < 2 { // 0 would stop our own process group
		tb.Fatal("nobody sends to the standby")
	}
	if err := syscall.Kill(sender, syscall.SIGSTOP); err != nil {
		tb.Fatal(err)
	}
}

// Fail kills the primary and promotes the standby.
func (p *Pair) Fail(tb testing.TB) {
	tb.Helper()
	if err := p.Primary.Kill(); err != nil {
		tb.Error(err)
	}
	if err := p.Standby.Promote(tb.Context()); err != nil {
		tb.Error(err)
	}
}

// Value asks for one value, on a connection of its own.
func Value[T any](tb testing.TB, url, sql string, args ...any) (value T) {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), url)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(tb.Context())) }()
	if err := conn.QueryRow(tb.Context(), sql, args...).Scan(&value); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return value
}

func pause(tb testing.TB) {
	tb.Helper()
	select {
	case <-tb.Context().Done():
		tb.Fatal(tb.Context().Err())
	case <-time.After(2 * time.Millisecond):
	}
}
