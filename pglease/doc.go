// Package pglease leases resources by name, for services that already run on Postgres: one owner
// at a time, for a bounded time, with a fence that lets the protected resource refuse an owner
// whose time is over.
//
// # Who decides what
//
// Three parties take part, and each is the authority on one question only.
//
//   - The database decides who owns a resource now: one row a resource, judged by the database's
//     own clock. Clocks of the clients never enter into it.
//   - The client decides how long it may still act on what the database said. It renews, stops by
//     its own monotonic clock, and hands back. It never decides that it still owns anything.
//   - The protected resource decides whether a write is accepted. It compares the write's fence
//     with the greatest it has accepted, in the same atomic step as the write. See package fence.
//
// The first two make overlap of owners rare. Only the third makes a late write harmless: a process
// can be paused between its last check and its write for as long as its host likes, and no lease
// protocol can reach into that gap.
//
// # The life of a lease
//
//	           granted              too little left
//	Acquiring ---------> Held ------------------------> Suspect
//	                      | ^                            | |
//	                      | +------- renewed ------------+ |
//	                      |                                |
//	                      |  Release                       |  trust ran out, or
//	                      +-----------> Releasing <--------+  the database said so
//	                                        |              |
//	                                        v              v
//	                                    Released          Lost
//
// Held and Suspect turn into each other; Held turns into Lost too, when the database says that the
// lease is over. Suspect and Lost are reached by a local timer: no reply and no error is needed.
//
// # How trust is computed
//
// Each grant and renewal returns what the lease has left, read by the database's clock while it
// ran the statement. The client noted its monotonic clock before it sent that statement, so
//
//	trusted until = moment of sending + min(remaining, TTL) × (1 - Config.ClockDrift)
//
// lies before the database's own expiry, however long the request or its reply took, as long as
// the two clocks run at rates that differ by less than ClockDrift. The formula needs no agreement
// about the time of day. It does need a database clock that is not set forward: a step forward
// ends leases early for everybody, and their holders learn it from their next renewal.
//
// A lease is Suspect when less than Config.UnitOfWork of trust is left. By default the renewal is
// due after a third of the TTL and the lease turns Suspect at three quarters, which leaves several
// attempts in between.
//
// A lease that was handed over by another process is trusted for half of its TTL, until it is renewed for the
// first time, at a sixth. From the half on, who handed it over may end it for those who wait behind: a waiter that
// is stopped and has lost its session looks like one that died as it was served.
//
// On Linux the monotonic clock of Go stands still while the whole machine is suspended. After
// that, a lease may look trusted that the database has given to another. The fence covers this.
//
// # Waiting in line
//
// Acquire takes a place in line when the resource is held. A release serves the line in its own
// commit: the first waiter that lives gets the next lease, with the next fence, so the resource is
// never free in between and nobody barges in. Waiters that died, gave up or are past their deadline
// are passed over in the same statement. Whether a client lives is known from an advisory lock that
// its listening session holds, which the server frees when the process is gone, and from a beat, for
// one that is frozen or cut off.
//
//	holder                     database                           next in line
//	Release -----------------> ends the tenure, records it,
//	                           grants to the next: fence 43
//	        <----------------- committed ------ ring -------------> holds it
//
// Joining and releasing both hold the resource's row, and the row counts who waits: a release that
// comes after a join cannot miss it. The ring is a notification on the waiting client's own channel,
// sent after the commit, in the same round trip, and only when somebody waits. It has the new fence,
// and proves by a hash of the lease's id, which the waiter drew and told nobody but the database, that
// it was granted; the waiter trusts that lease from the moment when it last knew that it was not
// served yet. A ring without the proof, and one of a database that waits for a synchronous standby, only
// makes it look; where the ring is lost or cannot be had, it looks by itself. A holder that dies is
// replaced when its lease ends: the first in line watches that moment.
//
// # What happens at each failure
//
//	The process is paused         Its first question to the Lease after that is answered Lost.
//	                              Its writes, if it asks nothing, carry the older fence.
//	The database is unreachable   Renewals are tried again, with jitter, on a connection of their
//	                              own. Held, then Suspect, then Lost, all before the database's
//	                              own expiry.
//	A reply to a renewal is lost  Renewing does not change the identity: the next one succeeds.
//	A reply to an acquire is lost The same request is sent again and gets the same lease. If that
//	                              cannot be settled the request is abandoned: what it was granted
//	                              is ended, and it can never be granted later.
//	A reply to a release is lost  Released or not, it ends with its TTL. Release may be called
//	                              again.
//	A release arrives late        It names one lease. A newer lease of the resource is untouched.
//	The process dies              The lease ends with its TTL and another owner may have it.
//	The primary fails over and    Fences still grow: they are floored by the server's timeline and
//	loses the last grants         its clock. Two processes may believe that they own the resource;
//	                              the resource accepts only the newer.
//
// # What is promised
//
// Fences of one resource grow with each grant, across crashes, restarts, failovers that lose
// transactions, and restores, provided that the later server is on a higher timeline or its clock
// has passed that of the lost grant. At one time by the database's clock a resource has one owner
// at most, while the primary is unambiguous and keeps what it committed. An expired lease is over
// for good, also when nobody took it. Each request is granted at most once.
//
// # What is not promised
//
// That only one process believes it is the owner: a pause, or a failover that loses the last
// grants, makes two believe so. That a write stops at the moment of loss: only the resource can
// see to that. Fences that grow on two servers that are both writable on the same timeline. Order
// between the fences of different resources. Steps of one between fences.
package pglease
