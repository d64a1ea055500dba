package peers_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// A client that is woken by itself waits in the server, and each of its waits there is a statement. Where the next is
// in line when a release comes, as many are sent however fast the machine is.
func TestDirectWakeSendsAStatementMore(t *testing.T) {
	t.Parallel()
	told, woken := handOvers(t, "pglease"), handOvers(t, "pglease-directwake")
	if woken < told+turns/2 {
		t.Errorf("%d statements for %d hand-overs where one is woken, %d where all are told", woken, turns, told)
	}
}

const turns = 20

// handOvers has two sessions hand a resource to each other, and returns how many statements that took.
func handOvers(t *testing.T, name string) int64 {
	t.Helper()
	peer, ok := peers.ByName(name)
	if !ok {
		t.Fatalf("there is no peer %q", name)
	}
	url, count := pgleasetest.URL(t), &measure.Counter{}
	if err := peer.Prepare(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	control, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	crowd, err := peer.Open(t.Context(), peers.Options{Address: url, N: 2, Apart: true, TTL: time.Minute, Count: count})
	if err != nil {
		t.Fatal(err)
	}
	defer crowd.Close()
	release, err := crowd.Sessions[0].Acquire(t.Context(), "key", true)
	if err != nil {
		t.Fatal(err)
	}
	var before int64
	for turn := range 2 * turns {
		if turn == turns { // by then all sessions are made
			before = count.Count()
		}
		release = handOver(t, control, release, crowd.Sessions[(turn+1)%2])
	}
	sent := count.Count() - before
	if err := release(t.Context()); err != nil {
		t.Fatal(err)
	}
	return sent
}

// handOver releases when the next one is in line, and returns what releases its lease.
func handOver(t *testing.T, control *pgxpool.Pool, release func(context.Context) error, next peers.Session) func(context.Context) error {
	t.Helper()
	type grant struct {
		release func(context.Context) error
		err     error
	}
	granted := make(chan grant, 1)
	go func() {
		release, err := next.Acquire(t.Context(), "key", true)
		granted <- grant{release, err}
	}()
	for waiting := false; !waiting; {
		if err := control.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM "+peers.HistorySchema+".lease_waiter)").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	if err := release(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := <-granted
	if g.err != nil {
		t.Fatal(g.err)
	}
	return g.release
}
