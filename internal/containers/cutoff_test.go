package containers_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

func closeClient(t *testing.T, c *pglease.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// TestOwnerIsCutOffWithItsNetwork: the owner's container is taken out of the network to the leases, and stays
// in that to the reports.
//
//	   owner, in a container           leases          another, outside       reports
//	1  granted f1, publishes on        f1                                     versions under f1
//	2  (taken out of the network)
//	3  Suspect, Lost by its own clock  expires f1                             still accepted
//	4                                  f2              granted, establishes   watermark f2
//	5  publishes                                                              refused
//	6                                                  publishes, releases    version under f2
//	7  (put back) granted f3 > f2      f3                                     version under f3
func TestOwnerIsCutOffWithItsNetwork(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if _, err := s.engine.NetworkDisconnect(t.Context(), s.toLeases.ID, client.NetworkDisconnectOptions{Container: id(s.owner), Force: true}); err != nil {
		t.Fatal(err)
	}
	s.wantLostByItself(t)
	s.published(t, 2) // the reports do not know yet
	second := s.takeOver(t)
	s.wantRefused(t)
	if _, err := s.engine.NetworkConnect(t.Context(), s.toLeases.ID, client.NetworkConnectOptions{Container: id(s.owner)}); err != nil {
		t.Fatal(err)
	}
	s.handBack(t, second)
}

// TestLeasesArePaused: the database of the leases is paused, so its clock goes on and nobody is granted
// anything.
//
//	   owner, in a container           leases               another, outside       reports
//	1  granted f1, publishes on        f1                                          versions under f1
//	2                                  (paused)
//	3  Suspect, Lost by its own clock                       asks                   still accepted
//	4                                  (goes on) f1 is over
//	5                                  f2                   granted, establishes   watermark f2
//	6  publishes                                                                   refused
//	7                                                       publishes, releases    version under f2
//	8  granted f3 > f2                 f3                                          version under f3
func TestLeasesArePaused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.pause(t, s.leases)
	s.wantLostByItself(t)
	s.published(t, 2)
	s.unpause(t, s.leases)
	second := s.takeOver(t)
	s.wantRefused(t)
	s.handBack(t, second)
}

// TestOwnerIsPaused: the owner's container is paused for longer than its lease.
//
//	   owner, in a container           leases          another, outside       reports
//	1  granted f1, publishes on        f1                                     versions under f1
//	2  (paused)                        expires f1
//	3                                  f2              granted, establishes   watermark f2
//	4                                                  publishes              version under f2
//	5  (goes on) publishes                                                    refused
//	6  Lost                                            releases
//	7  granted f3 > f2                 f3                                     version under f3
func TestOwnerIsPaused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.pause(t, s.owner)
	second := s.takeOver(t)
	s.unpause(t, s.owner)
	s.wantRefused(t)
	s.words.await(t, func(w word) bool { return w.Token == s.first.String() && w.State == pglease.Lost.String() })
	s.handBack(t, second)
}

// wantLostByItself returns when the owner's lease is over. Nobody has told it so.
func (s *stage) wantLostByItself(t *testing.T) {
	t.Helper()
	s.words.await(t, func(w word) bool { return w.State == pglease.Suspect.String() })
	lost := s.words.await(t, func(w word) bool { return w.State == pglease.Lost.String() && w.Err != "" })
	if strings.Contains(lost.Err, pglease.ErrTakenOver.Error()) {
		t.Errorf("the loss: %s", lost.Err)
	}
}

// takeOver is another owner from outside, whose fence is greater and who publishes.
func (s *stage) takeOver(t *testing.T) *pglease.Lease {
	t.Helper()
	s.leasesPool.Reset()
	lease, err := s.client.Acquire(t.Context(), report)
	if err != nil {
		t.Fatal(err)
	}
	if order, err := s.first.Compare(lease.Token()); err != nil || order >= 0 {
		t.Errorf("token %v, then %v: %v", s.first, lease.Token(), err)
	}
	if err := s.store.Establish(t.Context(), lease.Token(), report); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Publish(t.Context(), lease.Token(), reportstore.Report{ID: report, Body: []byte("the next owner's"), ExpectedVersion: reportstore.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	return lease
}

// wantRefused returns when the first owner has been refused, for its fence.
func (s *stage) wantRefused(t *testing.T) {
	t.Helper()
	refused := s.words.await(t, func(w word) bool { return w.Said == "refused" })
	if !strings.Contains(refused.Err, fence.ErrStaleOwner.Error()) || refused.Token != s.first.String() {
		t.Errorf("refused: %+v", refused)
	}
}

// handBack gives the first owner its turn once more, and looks at the history of the report.
func (s *stage) handBack(t *testing.T, second *pglease.Lease) {
	t.Helper()
	if err := second.Release(t.Context()); err != nil {
		t.Errorf("Release: %v", err)
	}
	last := s.words.await(t, func(w word) bool { return w.Said == "published again" })
	third, err := fence.Parse(last.Token)
	if err != nil || last.Err != "" {
		t.Fatal(last, err)
	}
	history := s.history(t)
	if stale := reportstore.Regressions(history); len(stale) > 0 {
		t.Errorf("an older owner wrote over a newer one's work: %+v", stale)
	}
	owners := make([]fence.LeaseID, 0, len(history))
	for _, v := range history {
		owners = append(owners, v.LeaseID)
	}
	if owners = slices.Compact(owners); !slices.Equal(owners, []fence.LeaseID{s.first.LeaseID(), second.Token().LeaseID(), third.LeaseID()}) {
		t.Errorf("the report was written by %v", owners)
	}
	rejections, err := s.store.Rejections(t.Context(), report)
	if err != nil || len(rejections) != 1 || rejections[0].Fence != s.first.Fence() {
		t.Errorf("refusals on record: %+v, %v", rejections, err)
	}
}
