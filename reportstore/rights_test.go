package reportstore_test

import (
	"errors"
	"testing"

	"github.com/pglease/pglease/internal/docrights"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

// Whoever has the rights of the docs can do all that a store does, and cannot touch what is on record.
func TestTheRightsForReportsAreEnough(t *testing.T) {
	t.Parallel()
	owner, _ := setUp(t)
	limited, _ := docrights.Pool(t, owner, "report")
	livesWith(t, newStore(t, limited))
	docrights.Forbidden(t, limited,
		"DELETE FROM pglease.report_version", "UPDATE pglease.report_rejection SET owner_id = ''", "DELETE FROM pglease.reports")
}

// livesWith does what a store can do.
func livesWith(t *testing.T, store *reportstore.Store) {
	t.Helper()
	if err := store.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
	if err := store.Establish(t.Context(), token(t, 1), july); err != nil {
		t.Error(err)
	}
	run, _, err := store.StartRun(t.Context(), july, period, "W")
	if err != nil {
		t.Fatal(err)
	}
	publish(t, store, token(t, 2), "first", 0, 1)
	publish(t, store, token(t, 2), "second", 1, 2)
	if _, err := store.Publish(t.Context(), token(t, 1), reportstore.Report{ID: july, Body: []byte("late")}); !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("a stale owner: %v", err)
	}
	if _, err := store.FinishRun(t.Context(), token(t, 2), july, period, run.Number, 2); err != nil {
		t.Error(err)
	}
	if read, err := store.Read(t.Context(), july); err != nil || string(read.Body) != "second" {
		t.Errorf("read %q, %v", read.Body, err)
	}
	if rejections, err := store.Rejections(t.Context(), july); err != nil || len(rejections) != 1 {
		t.Errorf("%d rejections, %v", len(rejections), err)
	}
	if history, err := store.History(t.Context(), july); err != nil || len(history) != 2 {
		t.Errorf("%d versions, %v", len(history), err)
	}
}
