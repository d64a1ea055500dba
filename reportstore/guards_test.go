package reportstore_test

import (
	"crypto/sha256"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/reportstore/internal/reportdb"
)

// Each guard of the conditional UPDATE, alone against a write that is right in all else, touches
// no row.
func TestReplaceGuards(t *testing.T) {
	t.Parallel()
	pool, store := setUp(t)
	publish(t, store, token(t, 41), "one", 0, 1)
	publish(t, store, token(t, 42), "two", 1, 2)
	s, err := schema.New("")
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256([]byte("three"))
	right := reportdb.ReplaceParams{
		ReportID: july, Body: []byte("three"), ContentHash: hash[:], ExpectedVersion: 2,
		Fence: 42, LeaseID: pgtype.UUID{Bytes: token(t, 42).LeaseID(), Valid: true}, OwnerID: "W42",
	}
	same := sha256.Sum256([]byte("two"))
	for name, change := range map[string]func(*reportdb.ReplaceParams){
		"another report": func(p *reportdb.ReplaceParams) { p.ReportID = "report/2026-08" },
		"lower fence":    func(p *reportdb.ReplaceParams) { p.Fence = 41 },
		"another lease":  func(p *reportdb.ReplaceParams) { p.LeaseID.Bytes[0]++ },
		"older version":  func(p *reportdb.ReplaceParams) { p.ExpectedVersion = 1 },
		"newer version":  func(p *reportdb.ReplaceParams) { p.ExpectedVersion = 3 },
		"no version yet": func(p *reportdb.ReplaceParams) { p.ExpectedVersion = 0 },
		"same content":   func(p *reportdb.ReplaceParams) { p.ContentHash = same[:] },
		"lower fence, any version": func(p *reportdb.ReplaceParams) {
			p.Fence, p.ExpectedVersion = 41, -1
		},
	} {
		wrong := right
		change(&wrong)
		if _, err := reportdb.New().Replace(t.Context(), s.On(pool), wrong); !errors.Is(err, pgx.ErrNoRows) {
			t.Errorf("%s: got %v, want no row", name, err)
		}
		holds(t, store, "two", 2, 42)
	}
	if row, err := reportdb.New().Replace(t.Context(), s.On(pool), right); err != nil || row.Version != 3 {
		t.Errorf("got %+v, %v", row, err)
	}
}

// Settle changes nothing about a write that nothing speaks against: it sends it back to Replace.
func TestSettleGuards(t *testing.T) {
	t.Parallel()
	pool, store := setUp(t)
	publish(t, store, token(t, 42), "one", 0, 1)
	s, err := schema.New("")
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256([]byte("two"))
	row, err := reportdb.New().Settle(t.Context(), s.On(pool), reportdb.SettleParams{
		ReportID: july, Body: []byte("two"), ContentHash: hash[:], ExpectedVersion: 1,
		Fence: 43, LeaseID: pgtype.UUID{Bytes: token(t, 43).LeaseID(), Valid: true}, OwnerID: "W43",
	})
	if err != nil || row.Result != "again" || row.Version != 1 {
		t.Errorf("got %+v, %v", row, err)
	}
	holds(t, store, "one", 1, 42)
	rejected(t, store, 0)
}
