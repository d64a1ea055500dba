package mutant

import "time"

// All are the bugs.
var All = []Mutant{
	{
		Name:       "frozen_clock",
		Tells:      "the clock of the transaction decides, which stands still while a statement waits",
		Finds:      []string{"guard"},
		Statements: []string{"AcquireFree", "Acquire", "Join", "Renew", "ReleaseUnawaited", "Guard", "GuardLast"},
		From:       "clock_timestamp()", To: "transaction_timestamp()",
		Pass:   []string{"clock_timestamp()", "transaction_timestamp()"},
		Stores: []string{"counter"},
		Only:   []string{"process_stopped", "network_slow"},
	},
	{
		Name:       "release_by_name",
		Tells:      "a release ends whatever lease the resource has",
		Finds:      []string{"truth"},
		Statements: []string{"ReleaseUnawaited"},
		From:       "r.lease_id = $2::uuid AND", To: "$2::uuid IS NOT NULL AND",
		Pass: []string{"l.lease_id = p_lease AND", ""},
		Only: []string{"release_delayed", "release_duplicated"},
	},
	{
		Name:       "renewal_by_upsert",
		Tells:      "a renewal takes the resource back that another has by now",
		Finds:      []string{"unbroken"},
		Statements: []string{"Renew"},
		Instead: `-- name: Renew :many
INSERT INTO pglease.resource_lease AS l (resource_id, owner_id, lease_id, request_id, fence, acquired_at, expires_at, ttl)
SELECT r.resource_id, r.owner_id, d.lease_id, r.request_id, r.fence, r.acquired_at, clock_timestamp() + r.ttl, r.ttl
FROM ROWS FROM (unnest($1::text[]), unnest($2::uuid[])) AS d(resource_id, lease_id)
JOIN pglease.resource_lease AS r ON r.resource_id = d.resource_id
ON CONFLICT (resource_id) DO UPDATE SET lease_id = EXCLUDED.lease_id, expires_at = EXCLUDED.expires_at, ended_at = NULL
RETURNING l.lease_id, (l.expires_at - clock_timestamp())::interval AS remaining, clock_timestamp()::timestamptz AS database_time,
          false AS awaited, (SELECT f.floor FROM pglease.fence_floor AS f)::bigint AS floor`,
		Authority: `DROP TRIGGER fence_never_falls ON pglease.resource_lease`,
		Only:      []string{"renewal_delayed", "authority_cut_off"},
	},
	{
		Name:       "renewal_of_the_expired",
		Tells:      "a lease that has expired can be renewed",
		Finds:      []string{"unbroken"},
		Statements: []string{"Renew"},
		From:       "AND l.expires_at > clock_timestamp()", To: "",
		Only:      []string{"renewal_delayed", "authority_cut_off"},
		Resources: 60, // so that not every lease that expires is taken over at once
	},
	{
		Name:       "early_takeover",
		Tells:      "a lease can be taken over before it has expired",
		Finds:      []string{"overlap", "locks"},
		Statements: []string{"Acquire", "Join"},
		From:       "l.expires_at + l.lock_delay <= clock_timestamp()", To: "l.expires_at + l.lock_delay <= clock_timestamp() + interval '250 ms'",
		Pass: []string{"l.expires_at + l.lock_delay <= clock_timestamp()", "l.expires_at + l.lock_delay <= clock_timestamp() + interval '250 ms'"},
		Only: []string{"process_stopped", "process_killed", "authority_cut_off"},
	},
	{
		Name:      "forgotten_floor",
		Tells:     "a fence is the one before and one more, and nothing keeps it above those that a failover lost",
		Finds:     []string{"fences"},
		Authority: `CREATE OR REPLACE VIEW pglease.fence_floor AS SELECT 1::bigint AS floor`,
		Only:      []string{"standby_promoted"},
	},
	{
		Name:  "old_snapshot",
		Tells: "a release looks for waiters in a snapshot that is older than the row's lock",
		Finds: []string{"queue"},
		Pass: []string{
			"    IF p_lease IS NULL THEN\n        SELECT", "    told := EXISTS (SELECT FROM pglease.lease_waiter AS q WHERE q.resource_id = p_resource);\n    IF p_lease IS NULL THEN\n        SELECT",
			"IF m.waiting > 0 THEN", "IF told THEN told := false;",
		},
		Only:   []string{"lease_broken"},
		Stores: []string{"counter"},
		// Joins are slow, so that one is often at the row when a release comes.
		Authority: `CREATE FUNCTION pglease.slow_join() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.02); RETURN NEW; END';
			CREATE TRIGGER slow_join BEFORE INSERT ON pglease.lease_waiter FOR EACH ROW EXECUTE FUNCTION pglease.slow_join()`,
		TTL:       3 * time.Second, // so that nobody gives up where the machine is slow
		Resources: 6,
	},
	{
		Name:       "guard_by_name",
		Tells:      "the guard asks whether somebody has the resource, and not who",
		Finds:      []string{"guard"},
		Statements: []string{"Guard", "GuardLast"},
		From:       "AND l.lease_id = $2::uuid AND l.fence = $3::bigint", To: "AND $2::uuid IS NOT NULL AND $3::bigint > 0",
		Stores: []string{"counter"},
		Only:   []string{"process_stopped", "authority_cut_off", "lease_broken"},
	},
	{
		Name:       "lower_fence",
		Tells:      "a report takes whatever fence",
		Finds:      []string{"accepted", "successor", "registers"},
		Statements: []string{"Replace"},
		From:       "r.greatest_fence < $2::bigint\n", To: "true\n",
		Resource: `DROP TRIGGER report_fence_never_falls ON pglease.reports`,
		Stores:   []string{"report"},
		Only:     []string{"process_stopped", "authority_cut_off", "lease_broken"},
	},
	{
		Name:       "compared_the_wrong_way",
		Tells:      "a watermark refuses who is newer",
		Finds:      []string{"registers"},
		Statements: []string{"Claim"},
		From:       "s.fence > $2::bigint", To: "s.fence < $2::bigint",
		Stores: []string{"watermark"},
		Only:   []string{"process_stopped"},
	},
	{
		Name:   "bare_files",
		Tells:  "files are written without a look at the watermark",
		Finds:  []string{"accepted", "successor"},
		Worker: "bare_files",
		Stores: []string{"file"},
		Only:   []string{"process_stopped", "authority_cut_off", "lease_broken"},
	},
	{
		Name:   "forged_tokens",
		Tells:  "writes carry a fence that nobody was granted",
		Finds:  []string{"granted"},
		Worker: "forged_tokens",
		Only:   []string{"process_stopped"},
	},
	{
		Name:     "commits_not_flushed",
		Tells:    "the resource acknowledges what a crash takes back",
		Finds:    []string{"truth"},
		Resource: `ALTER DATABASE postgres SET synchronous_commit = off`,
		Stores:   []string{"report", "watermark"},
		Only:     []string{"resource_crashed"},
	},
}
