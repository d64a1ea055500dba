package jobs

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits on what a caller may give. Beyond them an error that matches ErrInvalidJob comes before
// any SQL.
const (
	MaxQueueLength  = 128      // bytes
	MaxKeyLength    = 256      // bytes, of a partition key or a unique key
	MaxPayloadSize  = 1 << 20  // bytes
	MaxPayloadDepth = 512      // levels of arrays and objects
	MaxErrorLength  = 4096     // bytes, of the text of a failure
	MaxBatch        = 1000     // jobs or claims in one call
	MaxCallSize     = 64 << 20 // bytes of all payloads, or bodies of messages, in one call
	MaxPriority     = 2        // is claimed first
	MinPriority     = -2       // is claimed last
	MaxDelay        = 10 * 365 * 24 * time.Hour

	maxAttempts = 1_000_000
)

// State is where a job is in its life.
type State string

// The states of a job.
const (
	Ready   State = "ready"   // to be claimed when its time comes
	Waiting State = "waiting" // behind another job of its partition
	Running State = "running" // claimed
	Parked  State = "parked"  // gave up after its last attempt; for a person to retry or drop
	Done    State = "done"    // completed
	Dropped State = "dropped" // ended by a person
)

// A Job is work to be done once it is claimed.
type Job struct {
	// Queue names the queue: 1 to 128 bytes of UTF-8 without NUL and slash, compared byte for byte.
	Queue string

	// Payload is what the handler gets: JSON, at most MaxPayloadSize bytes, kept as it was given.
	// Nil is the JSON null. A NUL has no place in Postgres' JSON, nor has its escape \u0000.
	Payload []byte

	// Priority is from -2 to 2. The greater is claimed first.
	Priority int

	// RunAt is the earliest time to run, by the database's clock; Delay counts from the enqueueing
	// instead. Default: at once. Jobs of one priority are claimed in the order of these times.
	RunAt time.Time
	Delay time.Duration

	// MaxAttempts is after how many attempts the job is parked. Default: the Config's.
	MaxAttempts int

	// Partition makes the jobs of a queue that have the same key run one at a time, in the order
	// in which they were committed. A job that pauses or is parked holds up its own partition, and
	// no other. Priority and time to run matter from when a job is at the head of its partition.
	Partition string

	// Unique keeps a second job with the same key out of the queue.
	Unique Unique
}

// Unique is a key that one job of a queue may have at a time. By default a job has it until it is
// completed or dropped; retried or parked, it still has it.
type Unique struct {
	// Key is 1 to 256 bytes of UTF-8 without NUL. Empty: the job is not unique.
	Key string

	// For keeps the key taken for at least so long after the enqueueing, also when the job is over.
	For time.Duration

	// WhileWaiting gives the key up with the first claim: at most one job waits, and what comes
	// while it runs is a new job. Its retries run beside that one, without the key.
	WhileWaiting bool
}

// A Receipt answers for one Job, in the order of the call.
type Receipt struct {
	// ID is the job's, or that of the job that has the unique key already.
	ID int64

	// State is the state of that job.
	State State

	// Duplicate is set where another job has the unique key. Nothing was added.
	Duplicate bool
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalidJob}, args...)...)
}

// Check returns all that is wrong with the job, as Enqueue would: the error matches ErrInvalidJob.
func (j Job) Check() error {
	return errors.Join(
		checkQueue(j.Queue),
		checkPayload(j.Payload),
		checkKey("partition key", j.Partition),
		checkKey("unique key", j.Unique.Key),
		j.checkNumbers(),
	)
}

func (j Job) checkNumbers() error {
	switch {
	case j.Priority < MinPriority || j.Priority > MaxPriority:
		return invalid("priority %d is not between %d and %d", j.Priority, MinPriority, MaxPriority)
	case j.Delay < 0 || j.Delay > MaxDelay:
		return invalid("delay %v is not between 0 and %v", j.Delay, MaxDelay)
	case j.Delay > 0 && !j.RunAt.IsZero():
		return invalid("it has both a time to run and a delay")
	case j.RunAt.Year() > 9999:
		return invalid("time to run is after the year 9999")
	case j.MaxAttempts < 0 || j.MaxAttempts > maxAttempts:
		return invalid("maximum of %d attempts is not between 0 and %d", j.MaxAttempts, maxAttempts)
	case j.Unique.For < 0 || j.Unique.For > MaxDelay:
		return invalid("unique key kept for %v, not between 0 and %v", j.Unique.For, MaxDelay)
	case j.Unique.Key == "" && j.Unique != Unique{}:
		return invalid("its unique key is empty")
	case j.Unique.WhileWaiting && j.Unique.For > 0:
		return invalid("a unique key that is given up by the claim cannot be kept for a time")
	}
	return nil
}

// checkQueue also keeps out the slash, which ends the queue in the names of resources.
func checkQueue(queue string) error {
	switch {
	case queue == "":
		return invalid("the queue's name is empty")
	case strings.ContainsRune(queue, '/'):
		return invalid("the queue's name %q contains a slash", queue)
	}
	return checkText("queue's name", queue, MaxQueueLength)
}

func checkKey(what, key string) error { return checkText(what, key, MaxKeyLength) }

func checkText(what, text string, limit int) error {
	switch {
	case len(text) > limit:
		return invalid("the %s is %d bytes long, the limit is %d", what, len(text), limit)
	case !utf8.ValidString(text):
		return invalid("the %s %q is not valid UTF-8", what, text)
	case strings.ContainsRune(text, 0):
		return invalid("the %s %q contains a NUL", what, text)
	}
	return nil
}
