package authority_test

import (
	"errors"
	"math"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/pglease/internal/leasedb"
)

// TestARequestCanBeLookedUp in each state that it can be in, and its tenure read from the history.
func TestARequestCanBeLookedUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s, err := schema.New("")
	if err != nil {
		t.Fatal(err)
	}
	look := func(request byte) (leasedb.LookupRequestRow, error) {
		return leasedb.New().LookupRequest(t.Context(), s.On(b.pool), leasedb.LookupRequestParams{
			ResourceID: "r", RequestID: pgtype.UUID{Bytes: [16]byte{0: request}, Valid: true},
		})
	}
	if _, err := look(1); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("before it was sent: %v", err)
	}
	token := b.granted("r", 1)
	if row, err := look(1); err != nil || !row.Current || row.Fence != token.Fence() || row.Remaining <= 0 {
		t.Errorf("while current: %+v, %v", row, err)
	}
	b.release(token)
	next := b.granted("r", 2)
	if row, err := look(1); err != nil || row.Current || row.Fence != token.Fence() {
		t.Errorf("after the next grant: %+v, %v", row, err)
	}
	b.release(next)
	tenures, err := leasedb.New().History(t.Context(), s.On(b.pool), leasedb.HistoryParams{ResourceID: "r", BeforeFence: math.MaxInt64, MaxRows: 10})
	if err != nil || len(tenures) != 2 || tenures[0].Fence != next.Fence() || tenures[1].Fence != token.Fence() || tenures[0].Ended != "released" {
		t.Errorf("history: %+v, %v", tenures, err)
	}
}
