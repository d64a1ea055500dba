package reportstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

var isolationLevels = []string{"read committed", "repeatable read", "serializable"}

// refusal tells whether err is one that the rule knows.
func refusal(err error) bool {
	return errors.Is(err, fence.ErrStaleOwner) || errors.Is(err, reportstore.ErrConflict)
}

func TestAcceptedFencesNeverDecrease(t *testing.T) {
	t.Parallel()
	pool := withSettings(t, nil, func(c *pgxpool.Config) { c.MaxConns = 16 })
	store := newStore(t, pool)
	const writers, rounds = 32, 10
	publish(t, store, token(t, 1), "before", 0, 1)
	var accepted atomic.Int64
	accepted.Add(1)
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for round := range rounds {
				// Later rounds have greater fences, as grants do, and several leases share one.
				by := tokenOf(t, july, 2+5*round+rand.IntN(15), w+1)
				if round%3 == 0 {
					if err := store.Establish(t.Context(), by, july); err != nil && !refusal(err) {
						t.Error(err)
					}
				}
				body := fmt.Appendf(nil, "writer %d, round %d", w, round)
				_, err := store.Publish(t.Context(), by, reportstore.Report{ID: july, Body: body, ExpectedVersion: reportstore.AnyVersion})
				if err == nil {
					accepted.Add(1)
				} else if !refusal(err) {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	h := history(t, store)
	if int64(len(h)) != accepted.Load() {
		t.Errorf("%d versions on record, %d were accepted", len(h), accepted.Load())
	}
	if bad := reportstore.Regressions(h); len(bad) > 0 {
		t.Errorf("the order was broken by %+v", bad)
	}
	for i, v := range h {
		if v.Number != int64(i+1) || (i > 0 && v.Fence < h[i-1].Fence) {
			t.Errorf("entry %d is version %d by fence %d", i, v.Number, v.Fence)
		}
	}
	if len(h) < 2 {
		t.Error("too little was accepted to show anything")
	}
}

// One owner's goroutines count a version up with the optimistic check: none is lost.
func TestVersionsAreNotLost(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	publish(t, store, token(t, 41), "", 0, 1)
	const writers, each = 8, 10
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for done := 0; done < each; {
				now, err := store.Read(t.Context(), july)
				if err != nil {
					t.Error(err)
					return
				}
				r := reportstore.Report{ID: july, Body: append(now.Body, byte('a'+w)), ExpectedVersion: now.Version}
				p, err := store.Publish(t.Context(), token(t, 41), r)
				switch {
				case err == nil && !p.Repeated:
					done++
				case err != nil && !errors.Is(err, reportstore.ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
	got, err := store.Read(t.Context(), july)
	if err != nil || len(got.Body) != writers*each {
		t.Errorf("%d bytes, want %d, %v", len(got.Body), writers*each, err)
	}
}

func TestNoSerializationFailureReachesTheCaller_T4(t *testing.T) {
	t.Parallel()
	for _, level := range isolationLevels {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			pool := withSettings(t, map[string]string{"default_transaction_isolation": level}, func(c *pgxpool.Config) { c.MaxConns = 20 })
			store := newStore(t, pool)
			const clients, rounds = 20, 5
			var writing sync.WaitGroup
			for c := range clients {
				writing.Go(func() {
					for round := range rounds {
						by := token(t, 1+c+round*clients)
						if err := store.Establish(t.Context(), by, july); err != nil && !refusal(err) {
							t.Error(err)
						}
						body := []byte(by.String())
						_, err := store.Publish(t.Context(), by, reportstore.Report{ID: july, Body: body, ExpectedVersion: reportstore.AnyVersion})
						if err != nil && !refusal(err) {
							t.Error(err)
						}
					}
				})
			}
			writing.Wait()
			newest := token(t, clients*rounds)
			holds(t, store, newest.String(), int64(len(history(t, store))), newest.Fence())
			if bad := reportstore.Regressions(history(t, store)); len(bad) > 0 {
				t.Errorf("the order was broken by %+v", bad)
			}
			_, err := store.Publish(t.Context(), token(t, 3), reportstore.Report{ID: july, Body: []byte("late"), ExpectedVersion: reportstore.AnyVersion})
			if !errors.Is(err, fence.ErrStaleOwner) {
				t.Errorf("a stale write: %v", err)
			}
		})
	}
}

func TestConcurrentFirstPublications(t *testing.T) {
	t.Parallel()
	pool := withSettings(t, nil, func(c *pgxpool.Config) { c.MaxConns = 8 })
	store := newStore(t, pool)
	for round := range 20 {
		name := fmt.Sprintf("report/%d", round)
		var writing sync.WaitGroup
		told := make([]error, 8)
		for i := range told {
			writing.Go(func() {
				r := reportstore.Report{ID: name, Body: fmt.Append(nil, i), ExpectedVersion: reportstore.AnyVersion}
				_, told[i] = store.Publish(t.Context(), tokenOf(t, name, i+1, i+1), r)
			})
		}
		writing.Wait()
		if err := told[len(told)-1]; err != nil {
			t.Errorf("the newest was told %v", err)
		}
		for _, err := range slices.DeleteFunc(told, func(err error) bool { return err == nil }) {
			if !errors.Is(err, fence.ErrStaleOwner) {
				t.Error(err)
			}
		}
		if got, err := store.Read(t.Context(), name); err != nil || string(got.Body) != "7" {
			t.Errorf("got %q, %v", got.Body, err)
		}
	}
}

func TestTheContextBoundsTheWait(t *testing.T) {
	t.Parallel()
	pool, store := setUp(t)
	publish(t, store, token(t, 41), "one", 0, 1)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if _, err := tx.Exec(t.Context(), `SELECT FROM pglease.reports FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = store.Publish(ctx, token(t, 42), reportstore.Report{ID: july, Body: []byte("two"), ExpectedVersion: 1})
	if !errors.Is(err, context.DeadlineExceeded) || refusal(err) {
		t.Errorf("got %v", err)
	}
}
