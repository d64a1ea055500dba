//go:build unix

package sequences_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/internal/torture/failover/servers"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// A host is a server whose clock can be set.
type host struct {
	*postgres.Server
	clock string // the file that says how far the clock is off
}

func newHost(t *testing.T) *host {
	t.Helper()
	library := servers.Faketime(t)
	server := servers.Own(t, postgres.Options{Durable: true, Env: []string{
		"LD_PRELOAD=" + library, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
	}})
	return &host{server, filepath.Join(filepath.Dir(server.DataDir()), ".faketimerc")}
}

// setClock puts the host's clock so far from the true time, at once.
func (h *host) setClock(t *testing.T, offset time.Duration) {
	t.Helper()
	next := h.clock + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+.3fs\n", offset.Seconds()), 0o644); err != nil { //nolint:gosec // the server's user reads it
		t.Fatal(err)
	}
	if err := os.Rename(next, h.clock); err != nil {
		t.Fatal(err)
	}
}

// restarts are the ways in which a server goes away and comes back.
var restarts = map[string]func(*testing.T, *host){
	"in order": func(*testing.T, *host) {},
	"killed":   func(t *testing.T, h *host) { h.crash(t) },
	"killed, and the clock is set back an hour": func(t *testing.T, h *host) {
		h.crash(t)
		h.setClock(t, -time.Hour)
	},
}

func (h *host) crash(t *testing.T) {
	t.Helper()
	if err := h.Kill(); err != nil {
		t.Error(err)
	}
}

// TestSequence10_RestartedAuthority: the fence is never lower after a restart, however the server went
// away, though its sessions commit asynchronously, and also when its clock is behind after that.
//
//	   owner i               authority                     report
//	1  granted f(i)          commits
//	2  publishes                                           version i under f(i)
//	3                        ends, restarts
//	4  (the lease stands)    f(i)
//	5                        grants the next: > f(i)       watermark f(i+1)
//	6  publishes                                           refused
//	   the next owner is owner i+1
func TestSequence10_RestartedAuthority(t *testing.T) {
	t.Parallel()
	for name, end := range restarts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			s := stageOn(t, h.URL()+"&synchronous_commit=off", pgleasetest.URL(t, migrations.Report))
			client := newClient(t, s.leases, pglease.Config{TTL: time.Minute})
			owner := s.take(t, client)
			s.publish(t, owner.Token(), "owner 1", 1)
			want := []accepted{{owner.Token(), "owner 1"}}
			for range 2 {
				end(t, h)
				if err := h.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
				s.leases.Reset()
				s.heldBy(t, owner.Token())
				release(t, owner)
				next := s.take(t, client)
				grows(t, owner.Token(), next.Token())
				s.publishStale(t, owner.Token(), "late")
				owner = next
				want = append(want, accepted{owner.Token(), fmt.Sprint("owner ", len(want)+1)})
				s.publish(t, owner.Token(), want[len(want)-1].body, int64(len(want)))
			}
			s.wantHistory(t, want...)
			s.wantRefused(t, want[0].by, want[1].by)
		})
	}
}

// TestSequence12_ClockAdjustments: the clock of the authority's host is set, forward past a lease and
// then far back. Nothing but that clock decides when a lease is over; the clients only count.
//
//	   W1                    W2                 authority's clock    lease         report
//	1  granted f1, publishes waits in line                           f1            version 1
//	2                                           + 1 h                over
//	3  Lost, at its next     granted f2,                             f2            watermark f2
//	   renewal               publishes                                             version 2, f2
//	4  publishes                                                                   refused
//	5                                           - 1 h                f2 lasts on
//	6                        renews, Held,
//	                         publishes                                             version 3, f2
//	7                        releases
//	8  granted f3 > f2                                               f3            watermark f3
//	9  publishes                                                                   version 4, f3
//	10                       publishes                                             refused
func TestSequence12_ClockAdjustments(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := stageOn(t, h.URL(), pgleasetest.URL(t, migrations.Report))
	events := &journal{}
	config := pglease.Config{TTL: time.Minute, RenewEvery: 200 * time.Millisecond}
	w1 := newClient(t, s.leases, config)
	config.Observer = events
	w2 := newClient(t, s.leases, config)
	first := s.take(t, w1)
	s.publish(t, first.Token(), "W1's", 1)
	granted := make(chan *pglease.Lease, 1)
	go func() {
		lease, err := w2.Acquire(t.Context(), s.report)
		if err != nil {
			t.Errorf("W2: %v", err)
		}
		granted <- lease
	}()
	s.inLine(t, 1)

	h.setClock(t, time.Hour)
	<-first.Done()
	second := <-granted
	if second == nil {
		return
	}
	grows(t, first.Token(), second.Token())
	s.establish(t, second.Token())
	s.publish(t, second.Token(), "W2's", 2)
	s.publishStale(t, first.Token(), "late")

	h.setClock(t, -time.Hour)
	events.await(t, pglease.EventClockStep, events.count(pglease.EventClockStep)+1)
	events.await(t, pglease.EventRenewed, events.count(pglease.EventRenewed)+2)
	if second.State() != pglease.Held {
		t.Errorf("after a step back W2's lease is %v: %v", second.State(), second.Err())
	}
	s.heldBy(t, second.Token())
	s.publish(t, second.Token(), "W2's, after the step back", 3)
	release(t, second)
	third := s.take(t, w1)
	grows(t, second.Token(), third.Token())
	s.publish(t, third.Token(), "W1's again", 4)
	s.publishStale(t, second.Token(), "late")
	s.wantHistory(t, accepted{first.Token(), "W1's"}, accepted{second.Token(), "W2's"},
		accepted{second.Token(), "W2's, after the step back"}, accepted{third.Token(), "W1's again"})
	s.wantRefused(t, first.Token(), second.Token())
}
