package jobs

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pglease/pglease/internal/schema"
)

// Bounds and defaults of a Config.
const (
	MinTTL     = 100 * time.Millisecond
	MaxTTL     = 24 * time.Hour
	DefaultTTL = 12 * time.Second

	DefaultConcurrency  = 10
	MaxConcurrency      = 10_000
	DefaultMaxAttempts  = 10
	DefaultPollEvery    = time.Second
	DefaultStopTimeout  = 30 * time.Second
	DefaultRetryBase    = time.Second
	DefaultRetryMax     = time.Hour
	DefaultKeepFinished = 7 * 24 * time.Hour

	// MaxOwnerLength is in bytes.
	MaxOwnerLength = 256
)

// Config says how a Client and a worker behave. The zero value of each field means its default; a
// negative one is invalid, and none means "for ever".
type Config struct {
	// Schema is the Postgres schema that the migrations were put into. Default "pglease".
	Schema string

	// Owner is shown to people as the worker of a job. It never decides anything. Default: host
	// name and process id.
	Owner string

	// TTL is how long a claim lives without a heartbeat, from 100 ms to 24 h. A job whose worker
	// died runs again TTL after the last heartbeat, and what polling adds. Default 12 s, which
	// makes that less than 15 s.
	TTL time.Duration

	// HeartbeatEvery is the time from one heartbeat of a worker process to the next, for all of its
	// claims together. At most TTL/2. Default TTL/3.
	HeartbeatEvery time.Duration

	// MaxAttempts is for jobs that say nothing themselves. After so many attempts a job is parked.
	// Default 10.
	MaxAttempts int

	// RetryBase and RetryMax are for failures that name no delay: the attempt n is followed by a
	// pause of RetryBase × 2^(n-1), at most RetryMax, give or take a quarter. Defaults 1 s and 1 h.
	RetryBase time.Duration
	RetryMax  time.Duration

	// What follows is for Run.

	// Queue is the queue that is worked on.
	Queue string

	// Concurrency is how many claims a worker process has at once. Default 10, at most 10,000.
	Concurrency int

	// PollEvery is how often an idle worker looks for jobs, give or take a fifth; a notification
	// makes it look at once. Default 1 s.
	PollEvery time.Duration

	// StopTimeout is how long handlers may go on after Run was told to stop. Then their contexts
	// are cancelled with ErrStopping, and jobs that end with that error are given back without
	// the attempt being counted. Default 30 s.
	StopTimeout time.Duration

	// KeepFinished is how long jobs are kept after they were completed or dropped. A worker prunes
	// the jobs of all queues, so the shortest among the workers counts. Default 7 days.
	KeepFinished time.Duration

	// Observer is told of everything that a worker does. Default: none.
	Observer Observer

	// Logger gets what no caller can see, such as a failed heartbeat. Default: nothing is logged.
	Logger *slog.Logger
}

// filled returns a copy with the defaults put in, or all that is wrong with it.
func (c Config) filled() (Config, *schema.Schema, error) {
	problems := c.negative()
	if c.Owner == "" {
		c.Owner = defaultOwner()
	}
	c.TTL = or(c.TTL, DefaultTTL)
	c.HeartbeatEvery = or(c.HeartbeatEvery, c.TTL/3)
	c.MaxAttempts = or(c.MaxAttempts, DefaultMaxAttempts)
	c.RetryBase = or(c.RetryBase, DefaultRetryBase)
	c.RetryMax = or(c.RetryMax, max(DefaultRetryMax, c.RetryBase))
	c.Concurrency = or(c.Concurrency, DefaultConcurrency)
	c.PollEvery = or(c.PollEvery, DefaultPollEvery)
	c.StopTimeout = or(c.StopTimeout, DefaultStopTimeout)
	c.KeepFinished = or(c.KeepFinished, DefaultKeepFinished)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := schema.New(c.Schema)
	if problems == nil { // what is negative is below its bound as well, and said once
		problems = c.check()
	}
	if err = errors.Join(problems, checkOwner(c.Owner), err); err != nil {
		return c, nil, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	return c, s, nil
}

func (c Config) negative() error {
	return errors.Join(
		refuse(c.TTL < 0, "TTL is negative"),
		refuse(c.HeartbeatEvery < 0, "HeartbeatEvery is negative"),
		refuse(c.MaxAttempts < 0, "MaxAttempts is negative"),
		refuse(c.RetryBase < 0, "RetryBase is negative"),
		refuse(c.RetryMax < 0, "RetryMax is negative"),
		refuse(c.Concurrency < 0, "Concurrency is negative"),
		refuse(c.PollEvery < 0, "PollEvery is negative"),
		refuse(c.StopTimeout < 0, "StopTimeout is negative"),
		refuse(c.KeepFinished < 0, "KeepFinished is negative"),
	)
}

// check returns all problems together.
func (c Config) check() error {
	return errors.Join(
		refuse(c.TTL < MinTTL || c.TTL > MaxTTL, "TTL %v is not between %v and %v", c.TTL, MinTTL, MaxTTL),
		refuse(c.HeartbeatEvery > c.TTL/2, "HeartbeatEvery %v is above half of TTL %v: one late heartbeat would lose all claims", c.HeartbeatEvery, c.TTL),
		refuse(c.HeartbeatEvery < c.TTL/1000, "HeartbeatEvery %v is below a thousandth of TTL %v", c.HeartbeatEvery, c.TTL),
		refuse(c.MaxAttempts > maxAttempts, "MaxAttempts %d is above %d", c.MaxAttempts, maxAttempts),
		refuse(c.RetryMax < c.RetryBase, "RetryMax %v is below RetryBase %v", c.RetryMax, c.RetryBase),
		refuse(c.RetryMax > MaxDelay, "RetryMax %v is above %v", c.RetryMax, MaxDelay),
		refuse(c.Concurrency > MaxConcurrency, "Concurrency %d is above %d", c.Concurrency, MaxConcurrency),
		refuse(c.PollEvery < time.Millisecond, "PollEvery %v is below a millisecond", c.PollEvery),
	)
}

func checkOwner(owner string) error {
	return errors.Join(
		refuse(len(owner) > MaxOwnerLength, "Owner is %d bytes long, the limit is %d", len(owner), MaxOwnerLength),
		refuse(!utf8.ValidString(owner) || strings.ContainsRune(owner, 0), "Owner %q is not valid UTF-8 without NUL", owner),
	)
}

func refuse(problem bool, format string, args ...any) error {
	if !problem {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func or[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	suffix := fmt.Sprintf("/%d", os.Getpid())
	return strings.ToValidUTF8(host[:min(len(host), MaxOwnerLength-len(suffix))], "") + suffix
}
