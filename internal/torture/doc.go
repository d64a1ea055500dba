// Package torture runs pglease as it is meant to be used, by processes that share resources, and does
// to them what happens to processes: it stops and kills them, loses what they send and what they are
// answered, delivers it late, twice or in another order, and kills, promotes, restores and misleads
// the databases. What the processes, the authority and the protected resources have on record after
// that is checked. The page docs/proof.md tells what is done and what is checked; this is how the code
// lies:
//
//	history   what is written down, and nothing else is checked
//	check     the checkers, a file each
//	proxy     the network that lies
//	worker    the process under test
//	mutant    the bugs that are planted to see them found
//	failover  failovers, restores and moves, one at a time; and a cluster of Patroni's
//	(here)    the databases, the faults, the legs of a run, the report
//	cmd/soak  the command
//
// It runs on Linux alone: it reads from the kernel in which order files got their names.
//
// # What has been run for longer
//
// All on one machine with two processors that had other work too, Postgres 15, legs of a minute:
//
//	seed   time  lease operations  faults  kinds  unknown  violations
//	101    5m               30217    1132     18     2546  0
//	202    10m              59805    2954     19     6637  0
//	404    3m               28794     876     18     3108  1, see below
//	505    10m             100011    3047     18    10042  0
//	606    30s               7455     147     16      156  2 of a checker that did not know that others clear away what the dead were handed
//	707    5m               52080    1075     19     5073  1, see below
//	909    10m              60104    1730     19    11999  0, with ten times the work that the machine could do
//	808    10m             112892    2756     19    10593  0, the same
//
// # What it has found
//
// A call that waits, under a request that its caller named, was told that another has the resource,
// though a try of it whose answer was lost had a place in line, and was granted (seed 404, checker
// truth: "an acquire was refused, and its request has a lease").
//
// When workers repeat such calls where their outcome is not known, as the library says they may: the
// repeated call got a lease whose release, sent by the first one as it gave up, was still on its way and
// ended it (seed 5 of an early version, checker truth: "a lease was released before its holder did so").
//
// A named call that waits, with a try whose answer was lost, matched ErrHeld beside ErrUnknownOutcome when
// it was cut short, though it had a place in line and was served (seed 707, checker truth: "an acquire was
// refused, and its request has a lease").
//
// A lease that an operator breaks is recorded as ended before a write that a guarded transaction
// still commits under it (checker guard; it now takes that the next owner waits for that transaction).
package torture
