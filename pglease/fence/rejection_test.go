package fence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/fence"
)

// A refusal is on record once: with the transaction that met it, or by Record after it was rolled
// back, or both.
func TestARejectionIsRecordedOnce(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	mustApply(t, pool, w, token(t, 42), fence.Op{Owner: "W2"})
	since, err := w.Watermark(t.Context(), pool, pump)
	if err != nil {
		t.Fatal(err)
	}
	// Apply commits the record.
	_, refusal := apply(t, pool, w, token(t, 41), fence.Op{Owner: "W1"})
	for range 2 {
		if err := w.Record(t.Context(), pool, refusal); err != nil {
			t.Fatal(err)
		}
	}
	j := rejected(t, pool, w, pump, 1)[0]
	if r := j.Refused; r.Fence != 41 || r.LeaseID != token(t, 41).LeaseID() || r.Owner != "W1" ||
		r.GreatestFence != 42 || r.GreatestLeaseID != token(t, 42).LeaseID() || r.GreatestOwner != "W2" || !r.Since.Equal(since.Since) {
		t.Errorf("recorded %+v", j)
	}
	if j.Late() <= 0 || j.Late() != j.RejectedAt.Sub(since.Since) {
		t.Errorf("late by %v", j.Late())
	}
	// A rollback takes it back, and Record restores it.
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := w.Advance(t.Context(), tx, token(t, 40), fence.Op{})
		return err
	})
	if !errors.Is(err, fence.ErrStaleOwner) {
		t.Fatal(err)
	}
	rejected(t, pool, w, pump, 1)
	for range 2 {
		if err := w.Record(t.Context(), pool, err); err != nil {
			t.Fatal(err)
		}
	}
	if j := rejected(t, pool, w, pump, 2)[0]; j.Refused.Fence != 40 || j.Refused.Owner != "tester" {
		t.Errorf("recorded %+v", j)
	}
	counted(t, pool, w, 2)
}

// counted fails the test unless so many refusals are on record, and none from now on.
func counted(tb testing.TB, db fence.DB, w *fence.Watermarks, want int64) {
	tb.Helper()
	if n, err := w.CountRejections(tb.Context(), db, time.Time{}); err != nil || n != want {
		tb.Errorf("%d refusals, %v; want %d", n, err, want)
	}
	if n, err := w.CountRejections(tb.Context(), db, time.Now().Add(time.Hour)); err != nil || n != 0 {
		tb.Errorf("%d refusals from the future, %v", n, err)
	}
}

// Refusals of resources that are elsewhere can be kept here too.
func TestRecordTakesWhatItIsGiven(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	for _, err := range []error{nil, errors.New("no"), fence.ErrStaleOwner, context.Canceled} {
		if err := w.Record(t.Context(), pool, err); err != nil {
			t.Error(err)
		}
	}
	counted(t, pool, w, 0)
	least := &fence.StaleError{Resource: "bucket/object", Fence: 1, GreatestFence: 2}
	for range 2 {
		if err := w.Record(t.Context(), pool, &fence.Error{Op: "put", Err: least}); err != nil {
			t.Error(err)
		}
	}
	j := rejected(t, pool, w, "bucket/object", 1)[0]
	if r := j.Refused; r.Fence != 1 || r.GreatestFence != 2 || j.Late() != 0 || r.LeaseID != (fence.LeaseID{}) || r.Owner != "tester" {
		t.Errorf("recorded %+v", j)
	}
}

// A recorder is given once, and keeps what a resource elsewhere refuses, each once.
func TestRecorder(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	var record fence.Recorder
	var stale error = &fence.Error{Op: "put", Resource: "bucket/object", Err: &fence.StaleError{Resource: "bucket/object", Fence: 1, GreatestFence: 2}}
	if err := record.Keep(t.Context(), stale); err != stale { //nolint:errorlint // as it came
		t.Errorf("no recorder: got %v", err)
	}
	record = w.Recorder(pool)
	for _, err := range []error{nil, fence.ErrConflict, stale, stale} {
		if got := record.Keep(t.Context(), err); got != err { //nolint:errorlint // as it came
			t.Errorf("got %v, want %v", got, err)
		}
	}
	rejected(t, pool, w, "bucket/object", 1)

	ended, end := context.WithCancel(t.Context())
	end()
	if err := record.Keep(ended, stale); !fence.IsStale(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A Column keeps its refusals too, also those that a transaction met which is rolled back.
func TestColumnRecords(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	mustExec(t, pool, `CREATE TABLE device (device_id text PRIMARY KEY, fence bigint)`)
	mustExec(t, pool, `INSERT INTO device VALUES ($1, 42)`, pump)
	column := fence.Column{Table: pgx.Identifier{"public", "device"}, Key: "device_id", Fence: "fence", Recorder: w.Recorder(pool)}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return column.Update(t.Context(), tx, token(t, 41), fence.Change{}) })
	if !fence.IsStale(err) {
		t.Errorf("got %v", err)
	}
	if err := column.Update(t.Context(), pool, token(t, 43), fence.Change{}); err != nil {
		t.Error(err)
	}
	rejected(t, pool, w, pump, 1)
}

func TestStaleErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  fence.StaleError
		text string
	}{
		{fence.StaleError{Fence: 41, GreatestFence: 42}, "stale owner: fence 41 is older than 42"},
		{fence.StaleError{Fence: 41, GreatestFence: 42, GreatestOwner: "W2"}, "stale owner: fence 41 is older than 42 of W2"},
		{fence.StaleError{Fence: 42, GreatestFence: 42, GreatestLeaseID: fence.LeaseID{1}}, "stale owner: fence 42 is shared with that of lease 01000000-0000-0000-0000-000000000000, which came first"},
	} {
		if c.err.Error() != c.text {
			t.Errorf("got %q, want %q", c.err.Error(), c.text)
		}
		wrapped := &fence.Error{Op: "put", Resource: "r", Err: &c.err}
		if !fence.IsStale(wrapped) || !errors.Is(wrapped, fence.ErrStaleOwner) || fence.AsStale(wrapped) != &c.err {
			t.Errorf("not recognised: %v", wrapped)
		}
	}
	for _, err := range []error{nil, errors.New("x"), fence.ErrConflict, &fence.OrderError{}, &fence.ConflictError{}} {
		if fence.IsStale(err) || fence.AsStale(err) != nil {
			t.Errorf("%v counts as stale", err)
		}
	}
}

func TestTriggersHoldPsqlToTheWatermark(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	mustApply(t, pool, w, token(t, 42), fence.Op{Key: "k", Sequence: 7})
	_, _ = apply(t, pool, w, token(t, 41), fence.Op{})
	for _, sql := range []string{
		`UPDATE pglease.fence_watermark SET fence = 41`,
		`UPDATE pglease.fence_watermark SET fence = 41, lease_id = gen_random_uuid(), version = 2`,
		`UPDATE pglease.fence_watermark SET lease_id = gen_random_uuid()`,
		`UPDATE pglease.fence_watermark SET version = 0`,
		`UPDATE pglease.fence_watermark SET last_sequence = 6`,
		`UPDATE pglease.fence_watermark SET resource_id = 'other', fence = 50`,
		`DELETE FROM pglease.fence_watermark`,
		`TRUNCATE pglease.fence_watermark`,
	} {
		refused(t, pool, "PGF02", sql)
	}
	for _, sql := range []string{
		`UPDATE pglease.fence_command SET result = 'x'`,
		`DELETE FROM pglease.fence_command`,
		`TRUNCATE pglease.fence_command`,
		`UPDATE pglease.fence_rejection SET owner_id = 'x'`,
		`DELETE FROM pglease.fence_rejection`,
		`TRUNCATE pglease.fence_rejection`,
	} {
		refused(t, pool, "PGF03", sql)
	}
	stands(t, pool, w, 42, 1, 7)

	// Pruning is asked for by name. It takes nothing from the watermark, and the key with it.
	mustExec(t, pool, `SET LOCAL pglease.prune = on; DELETE FROM pglease.fence_command; DELETE FROM pglease.fence_rejection`)
	rejected(t, pool, w, pump, 0)
	if _, err := apply(t, pool, w, token(t, 42), fence.Op{Sequence: 7}); !errors.Is(err, fence.ErrOutOfOrder) {
		t.Errorf("a pruned sequence: %v", err)
	}
	if out := mustApply(t, pool, w, token(t, 42), fence.Op{Key: "k"}); out.Repeated {
		t.Error("a pruned key is known")
	}
}
