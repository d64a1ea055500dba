// Package filestore keeps files that refuse a stale owner: a directory, one lease that protects it,
// and a watermark beside the files.
//
//	store, err := filestore.Open("/var/lib/reports", "report/2026-07")
//	...
//	err = store.Establish(ctx, lease.Token())                  // the lease is new: shut out earlier owners
//	before, err := store.Read("summary.csv")                   // nobody but this owner changes it now
//	err = store.Write(ctx, lease.Token(), "summary.csv", text) // refused once a newer owner has come
//
// # How a write goes
//
// The directory has a subdirectory of its own for bookkeeping, .pglease. It holds the watermark: the
// newest token that the directory has accepted. A write, in this order:
//
//  1. takes the lock, flock on .pglease, which the kernel gives back when a process dies;
//  2. reads the watermark, and refuses a token that was granted before it, or that shares its fence
//     and is of another lease;
//  3. for a newer token, replaces the watermark: a new file, fsync, rename, fsync of .pglease;
//  4. writes the content to a file in .pglease, and fsyncs it;
//  5. renames that to the file's name, and fsyncs the directories on the way to it.
//
// A process that is killed between two steps leaves a watermark that is too high at worst, which
// shuts out nobody but those who are stale. It never leaves part of a file, and what it leaves in
// .pglease the next write removes. The watermark is on disk before the change that it allows: so
// after a power cut no content is there whose fence is forgotten.
//
// # What is certain
//
//   - Once the directory has accepted a fence, by Write, Remove or Establish, no lower one changes a
//     file through a Store, from whatever process of this machine, however late it comes.
//   - A reader sees a file as it was before a write or as it was after it.
//   - What Write returned nil for survives a power cut, as far as fsync on that disk is true.
//   - After any other error than a refusal, the change was made wholly or not at all.
//
// # What is not
//
//   - The lock and the order of fsync and rename are those of a local file system, as ext4, XFS,
//     btrfs, ZFS or APFS. Do not use it on NFS, SMB or FUSE, nor share a directory between machines.
//   - Whoever writes without a Store is not held to anything. Let the directory belong to a user of
//     its own. Who removes .pglease makes the directory forget all owners.
//   - Until the newer owner has called Establish, Write or Remove, the directory has not heard of it
//     and accepts the older one. Establish first, then read what the work is based on.
//   - Each change is of one file. Two changes of one owner are made in the order in which they got
//     the lock; whether either was meant for a later state is not checked.
//   - A process that is stopped, not killed, while it holds the lock keeps others waiting until it
//     continues or is killed. Their contexts bound that.
//
// # On record
//
// A refusal proves that fencing was needed. To have them kept beside those of other resources:
//
//	store, err := filestore.Open(dir, resource, filestore.WithRecorder(marks.Recorder(pool)))
//
// where marks is a fence.Watermarks, and pool leads to a database with its tables.
//
// # Damage
//
// A watermark that cannot be read is never guessed: everything is refused with ErrDamaged until
// somebody has looked at it. To mend it, write a token at least as new as any that the directory may
// have accepted: a new grant's.
package filestore
