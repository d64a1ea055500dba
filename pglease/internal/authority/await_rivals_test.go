package authority_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pglease/pglease/pglease/internal/authority"
)

// rivals hand resources over to one client, which waits in the server again and again, until each has done it so often.
func rivals(s sleeper, often int, rival func(int) error) {
	s.Helper()
	const rivals = 3
	var resources []string
	var leases []authority.ID
	var told [rivals]chan authority.ID
	for i := range rivals {
		resources, told[i] = append(resources, fmt.Sprint("r", i)), make(chan authority.ID, 1)
		for n := range often {
			leases = append(leases, authority.ID{byte(i), byte(n), byte(n >> 8), 1})
		}
	}
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range rivals {
		wg.Go(func() {
			for n := range often {
				if err := handTo(s, resources[i], leases[i*often+n], told[i]); err != nil {
					s.Error(err)
					cancel()
					return
				}
				if rival != nil {
					if err := rival(i); err != nil {
						s.Error(err)
					}
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	slept := 0
	for {
		select {
		case <-done:
			if slept > 1 {
				s.Errorf("%d waits were not ended", slept)
			}
			return
		default:
		}
		answer, err := s.Await(ctx, authority.Awaited{Key: s.key, Resources: resources, Leases: leases, Most: 2 * time.Second})
		if err != nil {
			if ctx.Err() == nil {
				s.Error(err)
			}
			cancel()
			wg.Wait()
			return
		}
		if answer.Slept { // once, when all have been served
			slept++
		}
		for _, g := range answer.Grants {
			select {
			case told[slices.Index(resources, g.Token.Resource())] <- authority.ID(g.Token.LeaseID()):
			default: // it was told so often that it has not read all; each look finds what it still has
			}
		}
	}
}

// handTo acquires, has the client join, releases, and returns when the client has been told.
func handTo(s sleeper, resource string, lease authority.ID, told <-chan authority.ID) error {
	mine, theirs := lease, lease
	mine[4], theirs[4] = 1, 2
	answer, err := s.Acquire(s.Context(), authority.Request{Resource: resource, ID: mine, Owner: "w", TTL: ttl, Fresh: true})
	if err != nil || answer.Outcome != authority.Granted {
		return fmt.Errorf("acquire: %v, %w", answer, err)
	}
	_, err = s.Join(s.Context(), authority.JoinRequest{
		Request: authority.Request{Resource: resource, ID: theirs, Owner: "next", TTL: ttl}, Client: s.client, Lease: lease, MaxWaiting: 10,
	})
	if err != nil {
		return err
	}
	_, next, err := s.Release(s.Context(), authority.ReleaseRequest{Lease: answer.Token, Client: authority.ID{0: 9}})
	if err != nil || !next.Rung {
		return fmt.Errorf("release: %+v, %w", next, err)
	}
	for {
		select {
		case <-s.Context().Done():
			return s.Context().Err()
		case <-time.After(longer):
			return fmt.Errorf("the grant of %s was not told", resource)
		case got := <-told:
			if got != lease { // one that came twice
				continue
			}
		}
		_, _, err = s.Release(s.Context(), authority.ReleaseRequest{Lease: next.Token, Client: s.client})
		return err
	}
}

// TestNoGrantIsLostAsOneFallsAsleep: they come while it is awake, arms, looks, sleeps and wakes, two and three at once.
func TestNoGrantIsLostAsOneFallsAsleep(t *testing.T) {
	t.Parallel()
	rivals(newBench(t).sleeper(1), 150, nil)
}

// TestAStrangersCancellationLosesNothing: whenever it comes.
func TestAStrangersCancellationLosesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.sleeper(1)
	rivals(s, 100, func(int) error {
		for range 5 {
			if _, err := b.pool.Exec(t.Context(), "SELECT pg_cancel_backend($1)", s.process); err != nil {
				return err
			}
		}
		return nil
	})
}
