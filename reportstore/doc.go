// Package reportstore keeps reports that refuse a stale owner. It is the worked example of a
// resource protected by fences: read it as the model for a table of your own.
//
// # The problem
//
// A worker is granted the lease of report/2026-07 with fence 41, reads its input, and stops for
// forty seconds. Its lease expires, another worker is granted fence 42 and publishes. Then the
// first one resumes, still sure of its lease, and publishes its older result. No check on the
// worker's side can prevent that: there is always a gap between the check and the write. So the
// report itself must refuse, in the same atomic step as the change.
//
// # The rule
//
// Beside its content a report keeps a watermark: the greatest fence that it has accepted and the
// id of the lease which that fence belongs to. A write carries the [fence.Token] of its lease, and
// is judged on the locked row, in this order:
//
//	token < watermark                  stale owner: refused
//	token = watermark, another lease   stale owner: refused; two leases came to share a number
//	token > watermark                  the watermark rises to the token; then as below
//	token = watermark, same lease      the version decides: the expected one, or a conflict
//
// A fence and a version are two independent controls. The fence orders owners; the version tells
// an owner that the content changed since it looked. A newer owner whose expected version is
// wrong is told of the conflict, and has raised the watermark all the same: its predecessors are
// shut out.
//
// In SQL the heart of it is one conditional UPDATE:
//
//	UPDATE reports
//	SET body = :body, version = version + 1,
//	    greatest_fence = :fence, greatest_lease_id = :lease
//	WHERE report_id = :report
//	  AND (greatest_fence < :fence OR (greatest_fence = :fence AND greatest_lease_id = :lease))
//	  AND version = :expected
//
// An UPDATE that waits for a rival judges the row as the rival left it, so no more than READ
// COMMITTED is needed.
//
// A SELECT that checks, followed by an UPDATE that does not, has the race that this removes. A
// bare greatest_fence < :fence would refuse an owner's second write, greatest_fence <= :fence
// would let two leases with one number overwrite each other.
//
// That UPDATE decides about every report that exists (queries/report/publish.sql: Replace). Where
// it touches no row, a second statement locks the row and tells why, records the refusal, or makes
// the first version of a report that did not exist (Settle). An accepted write costs one round
// trip, the others two.
//
// # What is certain
//
//   - No version is accepted through a Store under a lower fence than one accepted or established
//     before, at any isolation level, however late a write arrives and whatever the clients believe.
//   - Triggers hold every other client, psql included, to part of that: the watermark never falls,
//     a change of the body counts the version up by one, each version is recorded, and the records
//     do not change. A statement of another's making can still overwrite the body without a look at
//     the watermark; it then stands in the history under whatever fence it named. [Regressions]
//     finds it.
//   - The same content again, under the same token, is applied once. So a call whose reply was
//     lost can be repeated as it was.
//
// # What is not
//
//   - Until the newer owner has published or called [Store.Establish], the report has not heard of
//     it, and accepts the older one. Establish first, then read what the work is based on.
//   - A write is judged by the fence alone. That the lease has expired is not known here, and an
//     owner that nobody succeeded may still publish.
//   - Reads are not fenced: a report that was read may be out of date a moment later.
//   - An answer is as durable as a commit of the database is: with synchronous_commit off, or after
//     a failover to a standby that lacked the commit, content and watermark go back together.
//
// # What is kept
//
// Every version with its content, and every refusal, until somebody prunes them:
//
//	BEGIN;
//	SET LOCAL pglease.prune = on;
//	DELETE FROM pglease.report_version WHERE published_at < ...;
//	DELETE FROM pglease.report_rejection WHERE rejected_at < ...;
//	COMMIT;
//
// The rows of reports stay for ever. Their number is that of the reports, and a row that went would
// take its watermark along: the next write would be a first one, whoever it came from.
//
// # Runs
//
// Where a report is made once for a period, the table report_runs says so by its primary key: see
// [Store.StartRun]. That is not fenced and needs no lease; who ends the run is, by [Store.FinishRun].
//
// # Names
//
// A report is bound to the resource of the same name: the token for report/2026-07 writes the
// report report/2026-07 and no other. Fences of different resources have no order, so a token of
// another resource is refused before anything is sent. Where one lease is to protect many rows,
// keep the watermark in a row of its own, named after the resource, and lock that row first.
package reportstore
