// Package demo plays the story of the paused worker with real processes on a real Postgres.
//
// The director starts two workers, which are this program again. W1 acquires a report's lease,
// computes the report, looks at its lease a last time, and is then stopped by the kernel. The
// authority lets the lease expire, W2 takes over and publishes, W1 is continued, and its write
// arrives. What the write does is up to the store, and what happened is read from the database.
//
// # How W1 is stopped at the right place
//
// Before its write a worker can pause: it says so and reads a line from its standard input. W1
// does that after its last check, and the director stops the process there with SIGSTOP and waits
// until the kernel shows every thread stopped. Only then does it write the line, which stays in
// the pipe. So W1 cannot have begun its write, and when it is continued the write is the next
// thing that it does. No timing is involved.
package demo
