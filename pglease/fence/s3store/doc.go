// Package s3store keeps objects that refuse a stale owner, in S3 or what speaks its protocol, over
// conditional writes.
//
//	store, err := s3store.Open(ctx, client, s3store.Config{Bucket: "reports"})
//	...
//	_, err = store.Establish(ctx, lease.Token())               // the lease is new: shut out earlier owners
//	body, version, err := store.Get(ctx, "report/2026-07")     // nobody but this owner changes it now
//	_, err = store.Put(ctx, lease.Token(), s3store.Object{Body: report})
//
// # What is stored
//
// Each resource has a pointer, a small JSON object: the token of the newest owner, a random nonce,
// the version, and the key of the data. The data are objects of their own, each written once under
// a key that no other write uses. Readers follow the pointer. A resource that is deleted keeps its
// pointer, as a tombstone: the fence in it must outlive the data.
//
//	reports-2026-07.<hash>/pointer                  {"token": "42:0197...:reports/2026-07", "nonce": ...,
//	                                                 "version": 7, "data": ".../data/...", ...}
//	reports-2026-07.<hash>/data/0000000000000042-<nonce>
//
// # Why an older fence never replaces a newer one
//
// S3 cannot compare numbers. What it offers is: put this if the object's ETag is still that, or if
// there is no object. A write therefore reads the pointer, token and ETag from one response, is
// refused if the token there is newer than its own, and otherwise puts its pointer on condition of
// that ETag. Where the condition fails, it begins again by reading.
//
// Think of all the pointers that a resource ever had, in the order in which the store took them.
// Take any two neighbours, P and then Q. Whoever put Q had read some pointer R, had found R's fence
// no higher than its own, which is Q's, and named R's ETag as the condition. The store took Q while
// P was there, so P had the ETag of R. No two pointers have the same ETag, as no two have the same
// nonce: R is P. So P's fence is no higher than Q's, and this holds all along the chain: once a
// fence is stored, no lower one is stored after it. It does not matter how late a put arrives: the
// condition travels with it, and an ETag that is gone does not come back. Where the fences are
// equal, the same argument with the lease ids in place of the fences shows that P and Q are of one
// lease.
//
// It rests on this:
//
//  1. The store takes conditional puts of one key one after another, each against the object that
//     is there then. Open tries whether conditions are looked at, and refuses a store that takes
//     them for decoration; that they are atomic cannot be seen from outside. S3 promises it within
//     a region; a replica in another region, and a store under two sites that are both writable, are
//     outside of this.
//  2. Different contents have different ETags. For an object put in one piece the ETag is made of
//     the content, and the nonce in it makes the content of each pointer a new one; with server-side
//     encryption it is not made of it, and changes with each put. Pointers are never put in parts.
//  3. All writers go by this rule, and nobody deletes a pointer. The policy below holds others to
//     half of that.
//  4. A read may return an old pointer: its ETag is old too. That costs a round, and never an order.
//
// A fence in the metadata of the data object would not do, although it is read with the same ETag.
// The ETag is made of the content alone: a newer owner that writes the content which is there
// already leaves the ETag as it was, and the older owner's condition still holds. The stored fence
// then goes from 2 back to 1. A test of this package shows it.
//
// # A reply that is lost
//
// When a put ends without an answer, it may have been taken or may be taken yet. The write reads
// the pointer again. Its own nonce there: the put was taken. The old ETag still there: it puts the
// same bytes on the same condition again, and at most one of the two is taken. Another pointer of
// an older owner: the condition of the lost put is gone for ever, and nothing was changed. A newer
// owner's, or another write's of the same lease: whether the put was taken before that cannot be
// told, and the error matches ErrUnknownOutcome. The SDK's own retries are off for pointers, as they
// would turn a success whose reply was lost into a failed condition.
//
// # What is certain
//
//   - Once a fence is stored, by Put, Delete or Establish, no write of a lower one takes effect
//     through a Store, from anywhere.
//   - A reader sees one version whole.
//   - Writes of the same lease, from however many processes, each take effect on top of the one
//     before; an ExpectedVersion tells whether that is the one which the writer knows.
//
// # What is not
//
//   - Until the newer owner has called Establish, Put or Delete, the store has not heard of it, and
//     the older one may write. Establish first, then read what the work is based on.
//   - Whoever is allowed to write to the bucket can put a pointer of his own making with a condition
//     that holds. Give these keys to nobody else.
//   - Data that no pointer names any more stays: Sweep removes it. Data of a write that was refused
//     half way is removed at once, or by Sweep where that was not possible.
//   - Older versions of a bucket with versioning are no harm. Expiration rules that reach the
//     pointers are: a resource whose pointer expired has no fence.
//
// # On record
//
// A refusal proves that fencing was needed. To have them kept beside those of other resources, in a
// Postgres with the tables of a fence.Watermarks, here marks:
//
//	store, err := s3store.Open(ctx, client, s3store.Config{Bucket: bucket, Recorder: marks.Recorder(pool)})
//
// # The policy
//
// It denies puts without a condition, under the prefix, and so copies and uploads in parts too; and
// it denies that a pointer is deleted. In your own names:
//
//	{"Version": "2012-10-17", "Statement": [
//	  {"Sid": "WritesAreConditional", "Effect": "Deny", "Principal": "*", "Action": "s3:PutObject",
//	   "Resource": "arn:aws:s3:::BUCKET/PREFIX*",
//	   "Condition": {"Null": {"s3:if-match": "true", "s3:if-none-match": "true"}}},
//	  {"Sid": "PointersStay", "Effect": "Deny", "Principal": "*",
//	   "Action": ["s3:DeleteObject", "s3:DeleteObjectVersion"],
//	   "Resource": "arn:aws:s3:::BUCKET/PREFIX*/pointer"}]}
//
// A Store needs s3:GetObject and s3:PutObject; s3:ListBucket, without which S3 answers 403 instead
// of 404 for a pointer that is not there; and s3:DeleteObject for Sweep and for what Open leaves.
package s3store
