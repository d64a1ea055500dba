package pglease_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// failOver raises the generation, as a failover does.
func failOver(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "UPDATE pglease.installation SET generation_base = generation_base + 1"); err != nil {
		t.Fatal(err)
	}
}

// setGrace asks for one as docs/operations.md says.
func setGrace(t *testing.T, pool *pgxpool.Pool, grace time.Duration) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `UPDATE pglease.installation SET failover_grace = $1,
		grace_generation = (SELECT floor >> 41 FROM pglease.server_floor)`, grace)
	if err != nil {
		t.Fatal(err)
	}
}

// wantGrace checks that an error says: not now, because of the grace, and for how long.
func wantGrace(t *testing.T, err error, longest time.Duration) {
	t.Helper()
	var held *pglease.HeldError
	if !errors.Is(err, pglease.ErrHeld) || !errors.As(err, &held) || !held.Grace || held.Remaining <= 0 || held.Remaining > longest || held.Owner != "" {
		t.Errorf("in the grace: %v", err)
	}
}

// afterWrite is called when something is written, such as that an acquire is tried again.
type afterWrite func()

func (f afterWrite) Write(b []byte) (int, error) {
	f()
	return len(b), nil
}

// TestFailoverGrace: after a failover nothing is granted for the grace, whether or not the resource has
// been seen before; what is held stays held and can be released. Then everything goes on.
func TestFailoverGrace(t *testing.T) {
	t.Parallel()
	const grace = time.Hour
	pool := pgleasetest.Pool(t)
	failOver(t, pool)
	setGrace(t, pool, grace) // after a failover: for the next one
	client := newClient(t, pool, pglease.Config{TTL: time.Minute})
	release(t, acquire(t, client, "free")) // with a grace, and no failover: as ever
	kept, ended := acquire(t, client, "kept"), acquire(t, client, "ended")
	failOver(t, pool)

	for _, resource := range []string{"free", "new", "free"} {
		_, err := client.TryAcquire(t.Context(), resource)
		wantGrace(t, err, grace)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	impatient := newClient(t, pool, pglease.Config{Logger: slog.New(slog.NewTextHandler(afterWrite(cancel), nil))})
	_, err := impatient.Acquire(ctx, "new", pglease.WithRequestID(pglease.NewRequestID()))
	wantGrace(t, err, grace)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that was cut short: %v", err)
	}
	release(t, ended)
	if _, err := client.TryAcquire(t.Context(), "kept"); !errors.Is(err, pglease.ErrHeld) {
		t.Errorf("what is held: %v", err)
	}
	var left int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pglease.resource_lease WHERE resource_id = 'new'").Scan(&left); err != nil || left > 0 {
		t.Errorf("a refused request left %d rows, %v", left, err)
	}

	if _, err := pool.Exec(t.Context(), "UPDATE pglease.installation SET grace_until = clock_timestamp()"); err != nil {
		t.Fatal(err)
	}
	for _, resource := range []string{"free", "new", "ended"} {
		if lease := acquire(t, client, resource); lease.Token().Fence() <= kept.Token().Fence() {
			t.Errorf("%v came after %v", lease.Token(), kept.Token())
		}
	}
	wantState(t, kept, pglease.Held)
}

// TestGraceIsWaitedFor: whoever waits is served when the grace is over, those in line in their order, also
// where nobody else asks. The first that is refused begins the grace, and nothing makes it longer.
func TestGraceIsWaitedFor(t *testing.T) {
	t.Parallel()
	const grace = 1500 * time.Millisecond
	pool := pgleasetest.Pool(t)
	setGrace(t, pool, grace)
	events := newJournal()
	config := pglease.Config{TTL: time.Minute, PollEvery: 50 * time.Millisecond}
	holder := acquire(t, newClient(t, pool, config), "line")
	config.Observer = events
	client := newClient(t, pool, config)
	first := waitFor(t.Context(), client, "line")
	events.await(t, pglease.EventWaiting, 1)
	second := waitFor(t.Context(), client, "line")
	events.await(t, pglease.EventWaiting, 2)
	began := time.Now()
	failOver(t, pool)
	release(t, holder) // a hand-over would be a grant: nobody is served
	if readRow(t, pool, "line").current {
		t.Error("handed over in the grace")
	}
	late := waitFor(t.Context(), client, "new")
	for _, waiting := range []<-chan served{late, first, second} {
		s := <-waiting
		if s.err != nil {
			t.Fatal(s.err)
		}
		if took := time.Since(began); took < grace {
			t.Errorf("%v was granted after %v", s.lease.Token(), took)
		}
		release(t, s.lease)
	}
	var graces int
	err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pglease.installation WHERE grace_generation = 1
		AND grace_until <= (SELECT min(acquired_at) FROM pglease.lease_history WHERE fence >> 41 = 1)`).Scan(&graces)
	if err != nil || graces != 1 {
		t.Errorf("granted before the grace was over: %v", err)
	}
}

// TestNoGraceUnlessAskedFor: it is off by default.
func TestNoGraceUnlessAskedFor(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	client := newClient(t, pool, pglease.Config{})
	before := acquire(t, client, "r")
	release(t, before)
	failOver(t, pool)
	if after := acquire(t, client, "r"); after.Token().Fence()>>41 != before.Token().Fence()>>41+1 {
		t.Errorf("%v came after %v", after.Token(), before.Token())
	}
}
