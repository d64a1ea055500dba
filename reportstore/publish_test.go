package reportstore_test

import (
	"crypto/sha256"
	"errors"
	"reflect"
	"testing"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

func TestFirstPublication(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	done := publish(t, store, token(t, 41), "one", 0, 1)
	if done.Repeated || done.Hash != sha256.Sum256([]byte("one")) {
		t.Errorf("got %+v", done)
	}
	got, err := store.Read(t.Context(), july)
	if err != nil {
		t.Fatal(err)
	}
	want := reportstore.Published{
		ID: july, Version: 1, Body: []byte("one"), Hash: done.Hash, Fence: 41, LeaseID: token(t, 41).LeaseID(),
		Owner: "W41", GreatestFence: 41, PublishedAt: done.PublishedAt,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAnOwnerMayPublishSeveralTimes(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	publish(t, store, token(t, 41), "one", 0, 1)
	publish(t, store, token(t, 41), "two", 1, 2)
	publish(t, store, token(t, 41), "three", reportstore.AnyVersion, 3)
	publish(t, store, token(t, 42), "four", 3, 4)
	holds(t, store, "four", 4, 42)
	rejected(t, store, 0)
}

// The story: W1 pauses, W2 takes over and publishes, W1 resumes.
func TestStaleOwnerIsRefused_I11(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	publish(t, store, token(t, 42), "new", 0, 1)
	for _, expected := range []int64{reportstore.AnyVersion, 0, 1, 7} {
		_, err := store.Publish(t.Context(), token(t, 41), reportstore.Report{ID: july, Body: []byte("old"), ExpectedVersion: expected, Owner: "W1"})
		var stale *reportstore.StaleOwnerError
		if !errors.Is(err, fence.ErrStaleOwner) || errors.Is(err, reportstore.ErrConflict) || !errors.As(err, &stale) {
			t.Fatalf("expecting %d: got %v", expected, err)
		}
		want := reportstore.StaleOwnerError{
			Token: token(t, 41), GreatestFence: 42, GreatestLeaseID: token(t, 42).LeaseID(), GreatestOwner: "W42", Version: 1,
		}
		if *stale != want {
			t.Errorf("got %+v, want %+v", *stale, want)
		}
		if text := `reportstore: publish "report/2026-07": stale owner: fence 41 is older than 42 of W42`; err.Error() != text {
			t.Errorf("error reads %q, want %q", err, text)
		}
	}
	holds(t, store, "new", 1, 42)
	records := rejected(t, store, 4)
	r := records[len(records)-1]
	if r.Err != fence.ErrStaleOwner || r.Fence != 41 || r.LeaseID != token(t, 41).LeaseID() || r.Owner != "W1" || //nolint:errorlint // the field is the sentinel
		r.Greatest.Fence != 42 || r.Greatest.LeaseID != token(t, 42).LeaseID() || r.Greatest.Owner != "W42" || r.Greatest.Version != 1 ||
		r.ExpectedVersion != reportstore.AnyVersion || r.Late() <= 0 {
		t.Errorf("recorded %+v, late by %v", r, r.Late())
	}
}

// Two leases that came to share a number must not overwrite each other's work.
func TestTieIsRefused(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	publish(t, store, token(t, 42), "mine", 0, 1)
	twin := tokenOf(t, july, 42, 7)
	for _, expected := range []int64{reportstore.AnyVersion, 0, 1} {
		_, err := store.Publish(t.Context(), twin, reportstore.Report{ID: july, Body: []byte("mine"), ExpectedVersion: expected})
		if !errors.Is(err, fence.ErrStaleOwner) {
			t.Errorf("expecting %d: got %v", expected, err)
		}
	}
	if err := store.Establish(t.Context(), twin, july); !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("establish: got %v", err)
	}
	holds(t, store, "mine", 1, 42)
	rejected(t, store, 4)
}

func TestConflict(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	publish(t, store, token(t, 41), "one", 0, 1)
	publish(t, store, token(t, 41), "two", 1, 2)
	for _, expected := range []int64{0, 1, 3} {
		_, err := store.Publish(t.Context(), token(t, 41), reportstore.Report{ID: july, Body: []byte("x"), ExpectedVersion: expected})
		var c *reportstore.ConflictError
		if !errors.Is(err, reportstore.ErrConflict) || errors.Is(err, fence.ErrStaleOwner) || !errors.As(err, &c) {
			t.Fatalf("expecting %d: got %v", expected, err)
		}
		if c.Expected != expected || c.Actual != 2 {
			t.Errorf("got %+v", c)
		}
	}
	holds(t, store, "two", 2, 41)
	r := rejected(t, store, 3)[2]
	if r.Err != reportstore.ErrConflict || r.ExpectedVersion != 0 || r.Greatest.Version != 2 || r.Owner != "tester" { //nolint:errorlint // the field is the sentinel
		t.Errorf("recorded %+v", r)
	}
}

// A newer owner with a wrong version is told of the conflict, and shuts its predecessors out.
func TestConflictOfANewerOwnerRaisesTheWatermark(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	publish(t, store, token(t, 41), "one", 0, 1)
	_, err := store.Publish(t.Context(), token(t, 43), reportstore.Report{ID: july, Body: []byte("x"), ExpectedVersion: 5})
	if !errors.Is(err, reportstore.ErrConflict) {
		t.Fatal(err)
	}
	holds(t, store, "one", 1, 43)
	_, err = store.Publish(t.Context(), token(t, 41), reportstore.Report{ID: july, Body: []byte("y"), ExpectedVersion: 1})
	if !errors.Is(err, fence.ErrStaleOwner) {
		t.Fatal(err)
	}
	if r := rejected(t, store, 2)[1]; r.Greatest.Fence != 41 {
		t.Errorf("the conflict met watermark %d, want 41", r.Greatest.Fence)
	}
	publish(t, store, token(t, 43), "two", 1, 2)
}

func TestConflictOnAReportThatDoesNotExist(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	_, err := store.Publish(t.Context(), token(t, 43), reportstore.Report{ID: july, Body: []byte("x"), ExpectedVersion: 5})
	var c *reportstore.ConflictError
	if !errors.As(err, &c) || c.Actual != 0 {
		t.Fatal(err)
	}
	if _, err := store.Read(t.Context(), july); !errors.Is(err, reportstore.ErrNotFound) {
		t.Error(err)
	}
	if w, err := store.Watermark(t.Context(), july); err != nil || w.Fence != 43 || w.Version != 0 {
		t.Errorf("watermark %+v, %v", w, err)
	}
	rejected(t, store, 1)
	publish(t, store, token(t, 43), "one", 0, 1)
}

func TestEmptyBody(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	if err := store.Establish(t.Context(), token(t, 41), july); err != nil {
		t.Fatal(err)
	}
	// The row has the hash of an empty body already; that must not pass for a repetition.
	done, err := store.Publish(t.Context(), token(t, 41), reportstore.Report{ID: july})
	if err != nil || done.Version != 1 || done.Repeated {
		t.Fatalf("got %+v, %v", done, err)
	}
	holds(t, store, "", 1, 41)
	publish(t, store, token(t, 41), "x", 1, 2)
	publish(t, store, token(t, 42), "", 2, 3)
	if h := history(t, store); len(h) != 3 || h[1].Size != 1 || h[2].Size != 0 {
		t.Errorf("history %+v", h)
	}
}
