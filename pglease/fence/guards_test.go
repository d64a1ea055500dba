package fence_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/internal/fencedb"
)

func uuidOf(id fence.LeaseID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// Each guard of the statement that counts a command in, alone against one that is right in all else,
// touches no row.
func TestAcceptGuards(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	mustApply(t, pool, w, token(t, 42), fence.Op{})
	s, err := schema.New("")
	if err != nil {
		t.Fatal(err)
	}
	right := fencedb.AcceptParams{ResourceID: pump, Fence: 42, LeaseID: uuidOf(token(t, 42).LeaseID()), Version: 1, CommandKey: new("k")}
	for name, change := range map[string]func(*fencedb.AcceptParams){
		"another resource": func(p *fencedb.AcceptParams) { p.ResourceID = "other" },
		"lower fence":      func(p *fencedb.AcceptParams) { p.Fence = 41 },
		"higher fence":     func(p *fencedb.AcceptParams) { p.Fence = 43 },
		"another lease":    func(p *fencedb.AcceptParams) { p.LeaseID.Bytes[0]++ },
		"older version":    func(p *fencedb.AcceptParams) { p.Version = 0 },
		"newer version":    func(p *fencedb.AcceptParams) { p.Version = 2 },
	} {
		wrong := right
		change(&wrong)
		if _, err := fencedb.New().Accept(t.Context(), s.On(pool), wrong); !errors.Is(err, pgx.ErrNoRows) {
			t.Errorf("%s: got %v, want no row", name, err)
		}
	}
	stands(t, pool, w, 42, 1, 0)
	if n := count(t, pool, `SELECT count(*) FROM pglease.fence_command`); n != 0 {
		t.Errorf("%d commands on record", n)
	}
	if version, err := fencedb.New().Accept(t.Context(), s.On(pool), right); err != nil || version != 2 {
		t.Errorf("got %d, %v", version, err)
	}
}

// A claim that is refused changes nothing of the watermark, whatever it brings along.
func TestClaimGuards(t *testing.T) {
	t.Parallel()
	pool, w := setUp(t)
	mustApply(t, pool, w, token(t, 42), fence.Op{Sequence: 3})
	s, err := schema.New("")
	if err != nil {
		t.Fatal(err)
	}
	for name, by := range map[string]fence.Token{"lower fence": token(t, 41), "another lease": tokenOf(t, pump, 42, 7)} {
		for _, countUp := range []int64{0, 1} {
			row, err := fencedb.New().Claim(t.Context(), s.On(pool), fencedb.ClaimParams{
				ResourceID: pump, Fence: by.Fence(), LeaseID: uuidOf(by.LeaseID()), OwnerID: "x", CountUp: countUp,
				RejectionID: uuidOf(by.LeaseID()), // the second is on record already
			})
			if err != nil || row.Result != "stale" || row.Fence != 42 || row.Version != 1 || row.LastSequence != 3 {
				t.Errorf("%s: got %+v, %v", name, row, err)
			}
		}
		stands(t, pool, w, 42, 1, 3)
	}
	rejected(t, pool, w, pump, 2)
	// One that finds all as it should be changes nothing either, unless it counts.
	row, err := fencedb.New().Claim(t.Context(), s.On(pool), fencedb.ClaimParams{
		ResourceID: pump, Fence: 42, LeaseID: uuidOf(token(t, 42).LeaseID()), OwnerID: "x",
		RejectionID: uuidOf(token(t, 1).LeaseID()),
	})
	if err != nil || row.Result != "current" || row.OwnerID != "tester" {
		t.Errorf("got %+v, %v", row, err)
	}
	stands(t, pool, w, 42, 1, 3)
}
