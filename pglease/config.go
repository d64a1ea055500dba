package pglease

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
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
	DefaultTTL = 30 * time.Second

	// DefaultClockDrift is the share of a lease that is not trusted, for clocks that run at
	// different rates. NTP slews a clock by at most 0.05 %; this leaves room for virtual machines.
	DefaultClockDrift = 0.01

	// MaxOwnerLength is in bytes.
	MaxOwnerLength = 256

	DefaultMaxLeases   = 100_000
	DefaultMaxAcquires = 10_000
	DefaultMaxWaiters  = 1_000
	DefaultMaxWaiting  = 10_000
)

// Config says how a client behaves. The zero value of each field means its default; a negative
// one is invalid, and none means "for ever".
//
// A lease is safe to work under while R + D + P stays well below TTL: the renewal interval, the
// time that a renewal takes in bad moments, and the pause that the process may suffer.
type Config struct {
	// Owner is shown to people: in errors, in the history, by the operator's tool. It never
	// decides anything, so two processes may share it. Default: host name and process id.
	Owner string

	// Schema is the Postgres schema that the migrations were put into. Default "pglease".
	Schema string

	// TTL is how long a lease lives without renewal, from 100 ms to 24 h. A longer one rides out
	// longer disturbances, and makes the others wait longer after a crash. Default 30 s.
	TTL time.Duration

	// RenewEvery is the time from one renewal to the next, at most TTL/2. Default TTL/3.
	RenewEvery time.Duration

	// UnitOfWork is how long one unit of guarded work takes. A lease with less than this left is
	// SUSPECT: begin nothing new under it. At most TTL - RenewEvery, or every lease would be
	// suspect before its renewal is due. Default TTL/4.
	UnitOfWork time.Duration

	// ClockDrift is the greatest relative difference between the rates of this machine's
	// monotonic clock and the database's clock, below 0.5. A lease is trusted until
	//
	//	moment of sending + remaining × (1 - ClockDrift)
	//
	// where remaining is what the database said the lease had left. Default 0.01.
	ClockDrift float64

	// RequestTimeout bounds each statement, with the connecting before it where there was none; a
	// renewal is given a third of the trust that is left. Default TTL/3, at most 5 s and at least 250 ms.
	RequestTimeout time.Duration

	// PollEvery is how often those who wait look by themselves, give or take a fifth, while no
	// listening session can be had. Default 1 s, or TTL/3 if that is less; at most TTL/2.
	PollEvery time.Duration

	// MaxHold is the longest time that a lease is renewed for; then it runs out. It is a net
	// under handles that were forgotten. Default: none is set.
	MaxHold time.Duration

	// MaxLeases and MaxAcquires bound what a client holds, and how many calls to acquire are
	// under way in it. Defaults 100,000 and 10,000.
	MaxLeases   int
	MaxAcquires int

	// MaxWaiters bounds how many may be in line for a resource when a call of this client joins, and
	// MaxWaiting how many calls of this client wait, for whatever. Defaults 1,000 and 10,000.
	MaxWaiters int
	MaxWaiting int

	// DirectWake has this client's listening session wait in the server while its waiters are served often: for a
	// second after one was. Whoever hands over then wakes that session alone, by cancelling its wait, and sends no
	// notification; before Postgres 19 a notification wakes every session that listens in the database, for
	// whatever. It pays where many do (from about 64) and leases change hands many times a second; not with a few.
	//
	// It costs the server a session that shows as active, and keeps a snapshot, for up to a second at a time (at most
	// TTL/6), and that log_min_duration_statement logs if it is below that; in rare moments the server also logs
	// "canceling statement due to user request" for it. Every role that changes leases must be able to cancel it, as the
	// same role can: see docs/operations.md. Where that is not so, where a synchronous standby is waited for, and where
	// the server cannot see a client die while it waits (before Postgres 14, and on some systems), it is notified as
	// without this; the log says so once.
	DirectWake bool

	// LockDelay keeps a resource free for a while after a lease of this client on it expired, as
	// WithLockDelay. Default: none.
	LockDelay time.Duration

	// Observer is told of every event. Default: nobody is.
	Observer Observer

	// Logger gets what no caller can see, such as a failed renewal. Default: nothing is logged.
	Logger *slog.Logger
}

// filled returns a copy with the defaults put in, or all that is wrong with it.
func (c Config) filled() (Config, *schema.Schema, error) {
	if err := c.negative(); err != nil {
		return c, nil, err
	}
	if c.Owner == "" {
		c.Owner = defaultOwner()
	}
	c.TTL = or(c.TTL, DefaultTTL)
	c.RenewEvery = or(c.RenewEvery, c.TTL/3)
	c.UnitOfWork = or(c.UnitOfWork, c.TTL/4)
	c.ClockDrift = or(c.ClockDrift, DefaultClockDrift)
	c.RequestTimeout = or(c.RequestTimeout, min(c.TTL, 5*time.Second, max(c.TTL/3, 250*time.Millisecond)))
	c.PollEvery = or(c.PollEvery, min(time.Second, c.TTL/3))
	c.MaxLeases = or(c.MaxLeases, DefaultMaxLeases)
	c.MaxAcquires = or(c.MaxAcquires, DefaultMaxAcquires)
	c.MaxWaiters = or(c.MaxWaiters, DefaultMaxWaiters)
	c.MaxWaiting = or(c.MaxWaiting, DefaultMaxWaiting)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := schema.New(c.Schema)
	if err = errors.Join(c.check(), err); err != nil {
		return c, nil, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	return c, s, nil
}

func (c Config) negative() error {
	var problems []error
	for name, negative := range map[string]bool{
		"TTL": c.TTL < 0, "RenewEvery": c.RenewEvery < 0, "UnitOfWork": c.UnitOfWork < 0,
		"ClockDrift": c.ClockDrift < 0, "RequestTimeout": c.RequestTimeout < 0, "PollEvery": c.PollEvery < 0,
		"MaxHold": c.MaxHold < 0, "MaxLeases": c.MaxLeases < 0, "MaxAcquires": c.MaxAcquires < 0,
		"MaxWaiters": c.MaxWaiters < 0, "MaxWaiting": c.MaxWaiting < 0, "LockDelay": c.LockDelay < 0,
	} {
		if negative {
			problems = append(problems, fmt.Errorf("%s is negative", name))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("%w: %w", ErrInvalidConfig, errors.Join(problems...))
	}
	return nil
}

// check returns all problems together.
func (c Config) check() error {
	return errors.Join(
		checkOwner(c.Owner),
		checkTTL(c.TTL),
		refuse(c.RenewEvery > c.TTL/2, "RenewEvery %v is above half of TTL %v: one late renewal would lose the lease", c.RenewEvery, c.TTL),
		refuse(c.RenewEvery < c.TTL/1000, "RenewEvery %v is below a thousandth of TTL %v", c.RenewEvery, c.TTL),
		refuse(c.UnitOfWork > c.timing(c.TTL).trust(c.TTL)-c.RenewEvery, "UnitOfWork %v is above TTL - ClockDrift - RenewEvery = %v: every lease would be suspect before its renewal",
			c.UnitOfWork, c.timing(c.TTL).trust(c.TTL)-c.RenewEvery),
		refuse(!(c.ClockDrift < 0.5), "ClockDrift %v is not below 0.5", c.ClockDrift),
		refuse(c.RequestTimeout > c.TTL, "RequestTimeout %v is above TTL %v", c.RequestTimeout, c.TTL),
		refuse(c.PollEvery > c.TTL/2, "PollEvery %v is above half of TTL %v: a grant could end before it is seen", c.PollEvery, c.TTL),
		refuse(c.MaxWaiters > math.MaxInt32, "MaxWaiters %d is above %d", c.MaxWaiters, math.MaxInt32),
		refuse(c.LockDelay > MaxTTL, "LockDelay %v is above %v", c.LockDelay, MaxTTL),
		refuse(c.MaxHold > 0 && c.MaxHold < c.TTL, "MaxHold %v is below TTL %v", c.MaxHold, c.TTL),
	)
}

func checkTTL(ttl time.Duration) error {
	return refuse(ttl < MinTTL || ttl > MaxTTL, "TTL %v is not between %v and %v", ttl, MinTTL, MaxTTL)
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
