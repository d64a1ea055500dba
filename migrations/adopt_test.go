package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// moveElsewhere makes the installation look like one that came from another server.
func moveElsewhere(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	execute(t, pool, "UPDATE pglease.installation SET system_identifier = system_identifier - 1")
}

func floor(t *testing.T, pool *pgxpool.Pool) int64 {
	t.Helper()
	return value[int64](t, pool, "SELECT floor FROM pglease.fence_floor")
}

func TestAdoptRaisesTheFloor(t *testing.T) {
	t.Parallel()
	const lease = `
INSERT INTO pglease.resource_lease (resource_id, owner_id, lease_id, request_id, fence, acquired_at, expires_at, ttl)
VALUES ('r', 'o', gen_random_uuid(), gen_random_uuid(), $1::bigint << 41 | 12345, now(), now(), '1s')`
	const tenure = `
INSERT INTO pglease.lease_history (resource_id, owner_id, lease_id, request_id, fence, acquired_at, expires_at, ended_at, ended)
VALUES ('r', 'o', gen_random_uuid(), gen_random_uuid(), $1::bigint << 41 | 12345, now(), now(), now(), 'released')`
	for name, test := range map[string]struct {
		lease, tenure int64 // generations
		base          int64
	}{
		"nothing granted yet":       {},
		"a lease of generation 7":   {lease: 7},
		"a tenure of generation 9":  {lease: 7, tenure: 9},
		"a lease above the history": {lease: 9, tenure: 7},
		"the base alone says more":  {base: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgleasetest.Pool(t)
			execute(t, pool, "UPDATE pglease.installation SET generation_base = generation_base + $1", test.base)
			if test.lease > 0 {
				execute(t, pool, lease, test.lease)
			}
			if test.tenure > 0 {
				execute(t, pool, tenure, test.tenure)
			}
			highest := max(floor(t, pool), test.lease<<41|12345, test.tenure<<41|12345)
			moveElsewhere(t, pool)

			if result := up(t, pool, "", migrations.Lease); !result.Adopted || len(result.Applied) != 0 {
				t.Errorf("up: %+v", result)
			}
			adopted := floor(t, pool)
			if adopted <= highest || adopted>>41 != highest>>41+1 {
				t.Errorf("floor is %d, generation %d; the highest fence was %d, generation %d", adopted, adopted>>41, highest, highest>>41)
			}
			if result := up(t, pool, "", migrations.Lease); result.Adopted {
				t.Error("it was adopted twice")
			}
			if again := floor(t, pool); again>>41 != adopted>>41 {
				t.Errorf("the generation went from %d to %d", adopted>>41, again>>41)
			}
		})
	}
}

func TestAdoptOnItsOwn(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	m := newMigrator(t, "")
	for _, want := range []bool{false, true, false} {
		if want {
			moveElsewhere(t, pool)
		}
		if adopted, err := m.Adopt(t.Context(), pool); err != nil || adopted != want {
			t.Errorf("adopt says %v, %v, want %v", adopted, err, want)
		}
	}
	if _, err := newMigrator(t, "elsewhere").Adopt(t.Context(), pool); err == nil {
		t.Error("adopt of a schema that there is not")
	} else if failed := asError(t, err); failed.Op != "adopt" {
		t.Errorf("error: %v", err)
	}
}
