package plans_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// byFound are statements that change what they have found, by an array of keys, like those that are given one.
var byFound = []string{
	"jobs.Claim", "jobs.CompleteAndClaim", "jobs.Reap", "jobs.Prune", "jobs.PruneMessages",
}

// shares are statements of which a part reads what may be a share of the table: a condition that makes each row
// dear would have it compiled (jit) each time. That part may go by a plan of the time when the table was small,
// until the table is analyzed the next time; their change may not.
var shares = map[string]string{
	"jobs.Reap":          "reads all that runs",
	"jobs.Prune":         "reads what is over",
	"jobs.PruneMessages": "reads what was relayed",
	"jobs.Promote":       "deletes the signals of its partitions, and joins with all signals",
}

// A namedStatement is a statement with its package.
type namedStatement struct {
	statement
	full string
}

// byArray are the statements that look rows up by an array.
func byArray(t *testing.T) []namedStatement {
	t.Helper()
	var list []namedStatement
	for name, dir := range packages {
		for _, s := range statements(t, dir) {
			if full := name + "." + s.name; isBatched(s) || slices.Contains(byFound, full) {
				list = append(list, namedStatement{s, full})
			}
		}
	}
	if len(list) < 20 {
		t.Fatalf("only %d statements have arrays", len(list))
	}
	return list
}

// A plan that was made and kept while the table was small is as good for a large one: whoever sends it begins
// with few rows. (One that was made of a table that was vacuumed or analyzed with no row or one in it walks
// all the same: for such a table the planner finds nothing cheaper. It goes with the next ANALYZE.)
func TestPlanOfASmallTableIsKept(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]struct {
		rows    int
		analyze bool
	}{
		"empty": {}, "few": {rows: 300}, "some": {rows: 800}, "more": {rows: 1500},
		"ten, analyzed": {rows: 10, analyze: true}, "few, analyzed": {rows: 20, analyze: true},
		"some, analyzed": {rows: 100, analyze: true}, "more, analyzed": {rows: 400, analyze: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := neverAnalyzed(t)
			addRows(t, pool, 1, before.rows)
			if before.analyze {
				if _, err := pool.Exec(t.Context(), "VACUUM ANALYZE"); err != nil {
					t.Fatal(err)
				}
			}
			checkKeptAsItGrows(t, pool, before.rows)
		})
	}
}

// checkKeptAsItGrows plans all statements, lets the tables grow and runs the statements by those plans.
func checkKeptAsItGrows(t *testing.T, pool *pgxpool.Pool, rows int) {
	t.Helper()
	list := byArray(t)
	calls, first := make([]string, len(list)), make([]string, len(list))
	h := how{mode: "force_generic_plan", batch: 500, run: true}
	err := pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) (err error) {
		for i, s := range list {
			if calls[i], err = prepareAs(t, conn.Conn(), "s"+strconv.Itoa(i), s.statement, h); err == nil {
				first[i], err = explained(t, conn.Conn(), calls[i], how{mode: h.mode})
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.full, err)
			}
		}
		addRows(t, pool, rows+1, 20_000) // on another connection: this one would forget its plans
		for i, s := range list {
			plan, err := explained(t, conn.Conn(), calls[i], h)
			if err != nil {
				return fmt.Errorf("%s: %w", s.full, err)
			}
			checkKeptPlan(t, s, rows, plan)
			if t.Failed() {
				t.Logf("%s was planned so:\n%s", s.full, first[i])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	ofChange = regexp.MustCompile(`Seq Scan on (job j|outbox o) `)
	found    = regexp.MustCompile(`Index (?:Only )?Scan [^\n]*\(actual rows=([\d.]+) loops=(\d+)\)`)
	scanned  = regexp.MustCompile(`Scan (?:using \w+ )?on (\w+)`)
)

func checkKeptPlan(t *testing.T, s namedStatement, rows int, plan string) {
	t.Helper()
	what := fmt.Sprintf("%s, kept from %d rows", s.full, rows)
	if _, ok := shares[s.full]; ok {
		if ofChange.MatchString(plan) {
			t.Errorf("%s, walks to change what it has found:\n%s", what, plan)
		}
		return
	}
	checkOneByOne(t, what, "force_generic_plan", plan)
	if !slices.ContainsFunc(scanned.FindAllStringSubmatch(plan, -1), func(m []string) bool { return slices.Contains(large, m[1]) }) {
		return // it only adds rows
	}
	want, most := 10.0, 0.0 // as many as a claim takes
	if isBatched(s.statement) {
		want = 100 // a fifth of the jobs is in each state
	}
	for _, m := range found.FindAllStringSubmatch(plan, -1) {
		n, err1 := strconv.ParseFloat(m[1], 64)
		loops, err2 := strconv.ParseFloat(m[2], 64)
		if err := errors.Join(err1, err2); err != nil {
			t.Error(err)
		}
		most = max(most, n*loops)
	}
	if most < want {
		t.Errorf("%s, found %v rows, fewer than %v:\n%s", what, most, want, plan)
	}
}

// A plan that knows how few rows an array names looks cheaper than one for any number; made anew each time it
// takes longer than all the rest.
func TestABatchIsPlannedOnce(t *testing.T) {
	t.Parallel()
	pool := neverAnalyzed(t)
	addRows(t, pool, 1, 2000)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			if _, err := pool.Exec(t.Context(), "VACUUM ANALYZE"); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range byArray(t) {
			if reason, ok := plannedAnew[s.full]; ok {
				t.Logf("%s is not held to it: it %s", s.full, reason)
				continue
			}
			for _, rows := range []int{1, 10, 500} {
				anew, err := plansOf(t, pool, s.statement, rows)
				if err != nil {
					t.Fatalf("%s: %v", s.full, err)
				}
				if anew > 6 {
					t.Errorf("of 12 times %s of %d rows, analyzed %v, %d were planned anew", s.full, rows, analyzed, anew)
				}
			}
		}
	}
}

// plannedAnew are statements whose plans may depend on what they are asked for, each with its reason.
var plannedAnew = map[string]string{
	"jobs.PruneMessages": "runs once a minute at most, and may find few messages or most of the table",
}

// plansOf is how many of twelve executions of a statement were planned for their values.
func plansOf(t *testing.T, pool *pgxpool.Pool, s statement, rows int) (anew int, err error) {
	t.Helper()
	err = pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		call, err := prepare(t, conn.Conn(), s, how{mode: "auto", batch: rows})
		if err != nil {
			return err
		}
		for range 12 {
			err := errors.Join(run(t, conn.Conn(), "BEGIN"), run(t, conn.Conn(), call), run(t, conn.Conn(), "ROLLBACK"))
			if err != nil {
				return err
			}
		}
		err = conn.QueryRow(t.Context(), "SELECT custom_plans FROM pg_prepared_statements WHERE name = 's'").Scan(&anew)
		return errors.Join(err, run(t, conn.Conn(), "DEALLOCATE s"))
	})
	return anew, err
}

// addRows adds to each table what the sample values name. It plans nothing and tells the planner nothing.
func addRows(t *testing.T, pool *pgxpool.Pool, from, to int) {
	t.Helper()
	err := pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		if err := run(t, conn.Conn(), "SET session_replication_role = replica"); err != nil {
			return err
		}
		for _, sql := range additions {
			if _, err := conn.Exec(t.Context(), sql, from, to); err != nil {
				return fmt.Errorf("%w\n%s", err, sql)
			}
		}
		return run(t, conn.Conn(), "RESET session_replication_role")
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A fifth of the jobs is in each state; half of the messages is relayed. What a statement adds has ids of its own.
var additions = []string{
	`INSERT INTO pglease.resource_lease (resource_id, owner_id, lease_id, request_id, fence, acquired_at, expires_at, ttl)
SELECT 'r/' || i, 'owner', md5('lease/' || i)::uuid, md5('request/' || i)::uuid, i, now(), now() + interval '1 hour', '1 hour'
FROM generate_series($1::int, $2::int) AS i`,
	`INSERT INTO pglease.lease_history (resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, ended_at, ended)
SELECT 'r/' || i, i, 'owner', md5('lease/' || i)::uuid, md5('old request/' || i)::uuid, now(), now(), now(), 'released'
FROM generate_series($1::int, $2::int) AS i`,
	`INSERT INTO pglease.lease_waiter (ticket, resource_id, request_id, client_id, owner_id, ttl, lock_delay, barging, joined_at)
OVERRIDING SYSTEM VALUE SELECT i, 'r/' || i, md5('waiting/' || i)::uuid, md5('client/' || i)::uuid, 'owner', '1 hour', '0', false, now()
FROM generate_series($1::int, $2::int) AS i`,
	`INSERT INTO pglease.lease_client (client_id, session_key, alive_until)
SELECT md5('client/' || i)::uuid, i, now() + interval '1 hour' FROM generate_series($1::int, $2::int) AS i`,
	`INSERT INTO pglease.job (id, queue, state, max_attempts, payload, fence, run_at, worker_id, expires_at, finished_at, partition_key, unique_key, unique_until)
OVERRIDING SYSTEM VALUE SELECT i, 'q/' || i % 10, s.state, 3, '{}', i, now() - interval '1 hour', 'worker',
       CASE WHEN s.state = 'running' THEN now() + interval '1 hour' END, CASE WHEN s.state = 'done' THEN now() - interval '1 hour' END,
       CASE WHEN s.state = 'waiting' THEN 'p/' || i END, 'u/' || i, CASE WHEN s.state = 'done' THEN now() - interval '1 minute' END
FROM generate_series($1::int, $2::int) AS i, LATERAL (SELECT (ARRAY['ready', 'running', 'waiting', 'parked', 'done'])[1 + i / 10 % 5]) AS s(state)`,
	`INSERT INTO pglease.outbox (id, outbox, message_key, topic, body, relayed_at, relayed_fence)
OVERRIDING SYSTEM VALUE SELECT i, 'o/5', 'k/' || i, 'topic', '', CASE WHEN i % 2 = 0 THEN now() - interval '1 hour' END, CASE WHEN i % 2 = 0 THEN 1 END
FROM generate_series($1::int, $2::int) AS i`,
	`INSERT INTO pglease.outbox_relay (outbox, greatest_fence, greatest_lease_id) SELECT 'o/5', 500, md5('lease/500')::uuid
WHERE $1::int <= $2::int ON CONFLICT DO NOTHING`,
	`SELECT setval('pglease.job_id_seq', 1000000), setval('pglease.outbox_id_seq', 1000000) WHERE $1::int <= $2::int`,
}
