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

func TestAdoptRaisesTheFloorOfJobs(t *testing.T) {
	t.Parallel()
	const job = "INSERT INTO pglease.job (queue, state, max_attempts, payload, fence) VALUES ('q', 'done', 1, '{}', $1::bigint << 41 | 12345)"
	const partition = "INSERT INTO pglease.job_partition (queue, partition_key, generation) VALUES ('q', 'p', $1::bigint << 41 | 12345)"
	const floorOfJobs = "SELECT floor FROM pglease.job_fence_floor"
	for name, test := range map[string]struct {
		job, partition int64 // generations
		base           int64
		below          int64 // the timeline here is so much below that of the server before
	}{
		"nothing claimed yet":             {},
		"a claim of generation 7":         {job: 7},
		"a partition of generation 9":     {job: 7, partition: 9},
		"a claim above the partition":     {job: 9, partition: 7},
		"the base alone says more":        {base: 20},
		"it was made on a later timeline": {job: 3, below: 50},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgleasetest.Pool(t, migrations.Jobs)
			execute(t, pool, "UPDATE pglease.job_installation SET generation_base = generation_base + $1", test.base)
			if test.below > 0 {
				execute(t, pool, "ALTER TABLE pglease.job_installation DISABLE TRIGGER job_installation_never_falls")
				execute(t, pool, "UPDATE pglease.job_installation SET generation_base = generation_base - $1", test.below)
				execute(t, pool, "ALTER TABLE pglease.job_installation ENABLE TRIGGER job_installation_never_falls")
			}
			if test.job > 0 {
				execute(t, pool, job, test.job)
			}
			if test.partition > 0 {
				execute(t, pool, partition, test.partition)
			}
			highest := max(value[int64](t, pool, floorOfJobs), test.job<<41|12345, test.partition<<41|12345)
			execute(t, pool, "UPDATE pglease.job_installation SET system_identifier = system_identifier - 1")

			if result := up(t, pool, "", migrations.Jobs); !result.Adopted || len(result.Applied) != 0 {
				t.Errorf("up: %+v", result)
			}
			if adopted := value[int64](t, pool, floorOfJobs); adopted>>41 <= highest>>41 {
				t.Errorf("floor is %d, generation %d; the highest fence was %d, generation %d", adopted, adopted>>41, highest, highest>>41)
			}
			if result := up(t, pool, "", migrations.Jobs); result.Adopted {
				t.Error("it was adopted twice")
			}
		})
	}
}

// Adopt looks after each line that is there, and misses none because another is missing or at home.
func TestAdoptCoversEachLine(t *testing.T) {
	t.Parallel()
	away := map[migrations.Line]string{
		migrations.Lease: "UPDATE pglease.installation SET system_identifier = system_identifier - 1",
		migrations.Jobs:  "UPDATE pglease.job_installation SET system_identifier = system_identifier - 1",
	}
	for _, lines := range [][]migrations.Line{{migrations.Lease}, {migrations.Jobs}, {migrations.Lease, migrations.Jobs}} {
		pool := pgleasetest.Pool(t, lines...)
		for _, moved := range lines {
			execute(t, pool, away[moved])
			for _, want := range []bool{true, false} {
				if adopted, err := newMigrator(t, "").Adopt(t.Context(), pool); err != nil || adopted != want {
					t.Errorf("lines %v, %s came from elsewhere: adopted %v, %v, want %v", lines, moved, adopted, err, want)
				}
			}
		}
	}
}
