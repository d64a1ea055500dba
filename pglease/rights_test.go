package pglease_test

import (
	"testing"
	"time"

	"github.com/pglease/pglease/internal/docrights"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func TestTheRightsOfTheDocsAreEnough(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	limited, _ := docrights.Pool(t, pool, "lease")
	client, other := newClient(t, limited, pglease.Config{}), newClient(t, limited, pglease.Config{})
	held := acquire(t, client, "r")
	waiting := waitFor(t.Context(), other, "r")
	inLine(t, pool, "r", 1)
	seen, err := other.Describe(t.Context(), "r")
	if err != nil || len(seen.Line) != 1 || !seen.Line[0].Alive {
		t.Errorf("Describe: %+v, %v", seen, err)
	}
	release(t, held)
	next := <-waiting
	if next.err != nil {
		t.Fatal(next.err)
	}
	pgleasetest.ExpireLease(t, pool, "r")
	last, err := client.Acquire(t.Context(), "r") // records the expiry
	if err != nil {
		t.Fatal(err)
	}
	if seen, err = client.Describe(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	if err := other.Break(t.Context(), seen, "ada", "a test"); err != nil {
		t.Errorf("Break: %v", err)
	}
	if err := last.Release(t.Context()); err == nil {
		t.Error("a broken lease was released")
	}

	setGrace(t, pool, time.Hour)
	failOver(t, pool)
	_, err = client.TryAcquire(t.Context(), "r")
	wantGrace(t, err, time.Hour)

	if err := other.Close(t.Context()); err != nil {
		t.Error(err)
	}
	var left int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pglease.lease_client").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d clients did not take themselves off: %v", left, err)
	}
}
