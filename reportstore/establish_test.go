package reportstore_test

import (
	"errors"
	"testing"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

func TestEstablishShutsEarlierOwnersOut(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	publish(t, store, token(t, 41), "one", 0, 1)
	for range 2 { // again is harmless
		if err := store.Establish(t.Context(), token(t, 42), july); err != nil {
			t.Fatal(err)
		}
	}
	holds(t, store, "one", 1, 42)
	_, err := store.Publish(t.Context(), token(t, 41), reportstore.Report{ID: july, Body: []byte("late"), ExpectedVersion: 1})
	var stale *reportstore.StaleOwnerError
	if !errors.As(err, &stale) || stale.GreatestOwner != "tester" {
		t.Fatal(err)
	}
	publish(t, store, token(t, 42), "two", 1, 2)
}

func TestEstablishAReportThatDoesNotExist(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	if _, err := store.Watermark(t.Context(), july); !errors.Is(err, reportstore.ErrNotFound) {
		t.Fatal(err)
	}
	if err := store.Establish(t.Context(), token(t, 42), july); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Read(t.Context(), july); !errors.Is(err, reportstore.ErrNotFound) {
		t.Errorf("read: %v", err)
	}
	_, err := store.Publish(t.Context(), token(t, 41), reportstore.Report{ID: july, Body: []byte("late")})
	if !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("an earlier owner: %v", err)
	}
	if h := history(t, store); len(h) != 0 {
		t.Errorf("history %+v", h)
	}
	publish(t, store, token(t, 42), "one", 0, 1)
	w, err := store.Watermark(t.Context(), july)
	if err != nil || w.Fence != 42 || w.LeaseID != token(t, 42).LeaseID() || w.Owner != "W42" || w.Version != 1 || w.Since.IsZero() {
		t.Errorf("watermark %+v, %v", w, err)
	}
}

func TestEstablishByAStaleOwner(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	publish(t, store, token(t, 42), "one", 0, 1)
	before, err := store.Watermark(t.Context(), july)
	if err != nil {
		t.Fatal(err)
	}
	err = store.Establish(t.Context(), token(t, 41), july)
	var stale *reportstore.StaleOwnerError
	if !errors.Is(err, fence.ErrStaleOwner) || !errors.As(err, &stale) || stale.GreatestFence != 42 || stale.Version != 1 {
		t.Fatal(err)
	}
	after, err := store.Watermark(t.Context(), july)
	if err != nil || before != after {
		t.Errorf("watermark was %+v, is %+v, %v", before, after, err)
	}
	if r := rejected(t, store, 1)[0]; r.ExpectedVersion != reportstore.AnyVersion || r.Fence != 41 {
		t.Errorf("recorded %+v", r)
	}
}
