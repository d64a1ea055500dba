// Package jobs lets services that run on Postgres claim work from a table, where that is a better
// arbiter than a lease: the row that says what is to be done also says who does it.
//
// # Claims
//
// A job is one row. A claim is one UPDATE that locks rows which nobody else has locked, counts the
// attempt and takes them:
//
//	WITH due AS MATERIALIZED (
//	    SELECT id FROM job
//	    WHERE queue = 'mail' AND state = 'ready' AND run_at <= clock_timestamp()
//	    ORDER BY priority DESC, run_at, id
//	    LIMIT 10
//	    FOR NO KEY UPDATE SKIP LOCKED
//	)
//	UPDATE job SET state = 'running', attempt = attempt + 1, fence = greatest(fence + 1, floor), ...
//	WHERE id = ANY(ARRAY(SELECT id FROM due))
//
// The LIMIT stands in a CTE that is materialised: a subquery in the WHERE of the UPDATE may be run
// again for each row by the planner's choice of a join, and then takes more than it should.
//
// # A claim is a lease of one job
//
// Each claim draws a fence that is greater than that of any claim of the job before. Complete,
// Fail, Snooze, Return and Extend name the job and this fence:
//
//	UPDATE job SET state = 'done', ... WHERE id = 7 AND fence = 42 AND state = 'running'
//
// A worker that was given up for dead, and wakes when another attempt is under way, touches no row
// and gets a *StaleClaimError. Completion by id alone would let it end the other's attempt. It is
// matched by the fence and not by the number of the attempt, because an attempt that was snoozed or
// given back is not counted, and because the numbers that a failover lost are given out again.
//
// Who works on one job after the other ends one and takes the next with [Client.CompleteAndClaim], in
// one statement and one commit.
//
// The fence also goes to whatever the job changes: [Claim.Token] is a fence.Token like that of a
// lease, for the resource job/<queue>/<id>, and [Claim.PartitionToken] one for a resource that all
// jobs of a partition key change.
//
// # What happens at each failure
//
//	The handler fails             The job is ready again after a pause that doubles, with jitter, or
//	                              that the handler names; after its last attempt it is parked.
//	The worker dies               Its heartbeats end, and with Config.TTL its claims: whoever tends the
//	                              queue makes the jobs ready. By default less than 15 s pass.
//	A job kills its worker        The attempt counts from the claim, so it is parked in the end.
//	The worker is paused          As if it died. When it wakes, the contexts of its handlers are
//	                              cancelled, by its own clock, before any reply; what it still
//	                              writes carries the older fence.
//	A reply to a claim is lost    The jobs run again after the TTL. The attempt was counted.
//	A reply to Complete is lost   The same call again finds that it is done.
//	A notification is lost        Polling finds the job.
//	The primary fails over and    Fences still grow: they are floored by the server's timeline and
//	loses the last claims         clock. A job that had been completed since may run again; the
//	                              resource refuses what the earlier claim still writes.
//
// # What is promised
//
// A job that was committed is run until it is completed, parked or dropped: at least once. At one
// time by the database one claim of a job can end it. An effect in the same database that commits
// in the transaction of CompleteTx happens exactly once.
//
// # What is not promised
//
// That only one process works on a job: one that was paused may not know yet that it is over.
// Effects elsewhere may happen more than once, unless the other side checks the token or knows an
// idempotency key. Order between jobs without a partition key: they are begun by priority and time
// to run, but for one that another process made ready late while the queue was busy (see Claim), and
// end as they end. Fairness between queues: each has workers of its own.
//
// # Partitions
//
// Jobs with a Partition key run one at a time, in the order in which their transactions committed.
// One is at the head, and a unique index holds that it is one; the others wait. When the head is
// over, or something is added, a trigger leaves a signal, and whoever tends the queue makes the
// next one ready. Who enqueues only inserts, so an open transaction holds up no worker. A head that
// pauses or is parked holds up its own partition; workers do not even look at what waits behind it.
//
// Each claim of any job of a partition draws the partition's next generation.
//
// # Other ways without a lock
//
// [Unique] keys keep a second job out. [States] swaps states of the caller's own rows. [Once] runs
// something once for a key and keeps the result. [Outbox] relays messages that were written with a
// change. docs/jobs.md tells when which of them is better than a lease.
//
// # Names
//
// A queue needs no creating. Names and keys are compared byte for byte. Payloads are JSON, kept as
// they were given; what Postgres' JSON cannot hold is refused before any SQL. All times are by the
// database's clock.
package jobs
