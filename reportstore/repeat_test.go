package reportstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
	"github.com/pglease/pglease/reportstore"
)

func TestSameContentIsAppliedOnce(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	publish(t, store, token(t, 41), "one", 0, 1)
	first := publish(t, store, token(t, 41), "two", 1, 2)
	// As sent before its own publication, as read after it, and without a look at the version.
	for _, expected := range []int64{1, 2, reportstore.AnyVersion} {
		again := publish(t, store, token(t, 41), "two", expected, 2)
		if !again.Repeated || again.Hash != first.Hash || !again.PublishedAt.Equal(first.PublishedAt) {
			t.Errorf("expecting %d: got %+v, want %+v repeated", expected, again, first)
		}
	}
	_, err := store.Publish(t.Context(), token(t, 41), reportstore.Report{ID: july, Body: []byte("two"), ExpectedVersion: 7})
	if !errors.Is(err, reportstore.ErrConflict) {
		t.Errorf("a version that never was: got %v", err)
	}
	if n := len(history(t, store)); n != 2 {
		t.Errorf("%d versions, want 2", n)
	}
}

func TestSameContentOfAnotherOwnerIsANewVersion(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	publish(t, store, token(t, 41), "one", 0, 1)
	if done := publish(t, store, token(t, 42), "one", 1, 2); done.Repeated {
		t.Error("taken for a repetition")
	}
	// What went between makes it a change, too.
	publish(t, store, token(t, 42), "two", 2, 3)
	publish(t, store, token(t, 42), "one", 3, 4)
	_, err := store.Publish(t.Context(), token(t, 41), reportstore.Report{ID: july, Body: []byte("one"), ExpectedVersion: 0})
	if !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("a repetition by a stale owner: got %v", err)
	}
}

// The reply to each statement that can apply a publication is lost once; the call is repeated as it was.
func TestLostReply_U1(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, statement string
		before          int64 // versions that exist before
	}{
		{"update", "-- name: Replace", 1},
		{"first", "-- name: Settle", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			faults := pgleasetest.NewFaults()
			store := newStore(t, faults.Pool(t, pgleasetest.URL(t, migrations.Report)))
			if tc.before > 0 {
				publish(t, store, token(t, 40), "zero", 0, 1)
			}
			r := reportstore.Report{ID: july, Body: []byte("one"), ExpectedVersion: tc.before}
			lost := faults.LoseNextReply(func(sql string) bool { return strings.Contains(sql, tc.statement) })
			_, err := store.Publish(t.Context(), token(t, 41), r)
			if err == nil || errors.Is(err, fence.ErrStaleOwner) || errors.Is(err, reportstore.ErrConflict) {
				t.Fatalf("a lost reply reads %v", err)
			}
			<-lost.Done()
			done, err := store.Publish(t.Context(), token(t, 41), r)
			if err != nil || !done.Repeated || done.Version != tc.before+1 {
				t.Fatalf("the repetition got %+v, %v", done, err)
			}
			if h := history(t, store); int64(len(h)) != tc.before+1 {
				t.Errorf("%d versions, want %d", len(h), tc.before+1)
			}
			rejected(t, store, 0)
		})
	}
}
