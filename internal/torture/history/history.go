// Package history is what a run of the torture harness writes down: every call of a process and
// what came of it, what the database and the protected resources themselves have on record, and the
// faults that were made. The checkers read nothing else, so a history that was kept can be checked
// again.
package history

import (
	"math"
	"slices"
	"time"
)

// Outcome is what the caller of a call knows of it.
type Outcome string

const (
	OK      Outcome = "ok"
	Refused Outcome = "refused" // it took no effect, and the caller was told so
	Unknown Outcome = "unknown" // it may have taken effect; also where the caller died before the answer
)

// Why a call was refused.
const (
	Stale    = "stale"    // the resource has accepted a newer token
	Conflict = "conflict" // the content has changed since
	Lost     = "lost"     // the lease is over
	Held     = "held"     // another has the resource
)

// Kinds of faults that checkers look at.
const (
	Killed  = "process_killed"    // ends a process
	Crashed = "authority_crashed" // ends the authority's server, which goes on with what it has on disk
)

// Names of calls.
const (
	TryAcquire = "try_acquire"
	Acquire    = "acquire"
	Release    = "release"
	Establish  = "establish"
	Publish    = "publish"
	Guard      = "guard"
)

// Names of stores, which are the kinds of protected resources.
const (
	Reports    = "report"
	Watermarks = "watermark"
	Files      = "file"
	Counters   = "counter"
)

// A Call is one call of a process. Times are of the machine's clock, which all processes share.
type Call struct {
	Name     string    `json:"name"` // unique in a run
	Process  string    `json:"process"`
	Call     string    `json:"call"`
	Store    string    `json:"store,omitempty"`
	Resource string    `json:"resource"`
	Key      string    `json:"key,omitempty"` // names what is published: the tries of one publication share it
	Request  string    `json:"request,omitempty"`
	Lease    string    `json:"lease,omitempty"`
	Fence    int64     `json:"fence,omitempty"`
	Outcome  Outcome   `json:"outcome,omitempty"`
	Why      string    `json:"why,omitempty"` // it was refused: Stale, Conflict, Lost or Held
	Err      string    `json:"err,omitempty"`
	Invoked  time.Time `json:"invoked"`
	Joined   time.Time `json:"joined,omitzero"`   // an acquire: when it knew that it was in line
	Returned time.Time `json:"returned,omitzero"` // zero: it never returned
	Database time.Time `json:"database,omitzero"` // the database's clock, where the answer told it
}

// Before tells whether c had returned when d was invoked.
func (c Call) Before(d Call) bool { return !c.Returned.IsZero() && c.Returned.Before(d.Invoked) }

// A Tenure is one grant as the authority has it on record. Its times are of the database's clock.
type Tenure struct {
	Resource string    `json:"resource"`
	Fence    int64     `json:"fence"`
	Lease    string    `json:"lease"`
	Request  string    `json:"request"`
	Owner    string    `json:"owner"`
	Acquired time.Time `json:"acquired"`
	Expires  time.Time `json:"expires"`
	Ended    time.Time `json:"ended,omitzero"`
	How      string    `json:"how,omitempty"`    // released, expired or broken; empty while it is the resource's last
	Ticket   int64     `json:"ticket,omitempty"` // the place in line that it came from
}

// End is when the tenure was over, or will be.
func (t Tenure) End() time.Time {
	if t.Ended.IsZero() {
		return t.Expires
	}
	return t.Ended
}

// A Change is what a trigger of the harness wrote down of one change of a lease's row.
type Change struct {
	Number   int64     `json:"number"`
	Resource string    `json:"resource"`
	Fence    int64     `json:"fence"`
	Lease    string    `json:"lease"`
	Expires  time.Time `json:"expires"`
	Ended    bool      `json:"ended,omitempty"`
	At       time.Time `json:"at"`
}

// A Write is one change that a protected resource accepted, as the resource itself has it on
// record. Number orders the writes of one store and resource.
type Write struct {
	Store    string    `json:"store"`
	Resource string    `json:"resource"`
	Number   int64     `json:"number"`
	Key      string    `json:"key"`
	Fence    int64     `json:"fence"`
	Lease    string    `json:"lease"`
	At       time.Time `json:"at"`
	Count    int64     `json:"count,omitempty"` // of a counter: what it was counted up to
}

// A Fault is one thing that the scheduler did.
type Fault struct {
	Kind   string    `json:"kind"`
	Target string    `json:"target,omitempty"`
	Detail string    `json:"detail,omitempty"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
}

// A Wait is one that a process's session made in the authority's server, to be woken there alone.
type Wait struct {
	Process string    `json:"process"`
	Ended   WaitEnd   `json:"ended"`
	At      time.Time `json:"at"` // it did
}

// WaitEnd is how such a wait ended.
type WaitEnd string

const (
	Roused WaitEnd = "roused" // whoever handed over ended it
	Slept  WaitEnd = "slept"  // by itself
	Found  WaitEnd = "found"  // it did not begin: the process had a lease already
)

// A Loss is a time whose commits the authority may have forgotten: in a failover, or because it was
// restored to how it had been at its beginning.
type Loss struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// A Step is a setting of the database host's clock.
type Step struct {
	At   time.Time `json:"at"`
	Days int       `json:"days"` // from the true time, after it
}

// A History is one leg of a run: what happened to a set of resources that no other leg uses.
type History struct {
	Began   time.Time
	Calls   []Call
	Tenures []Tenure
	Changes []Change
	Writes  []Write
	Faults  []Fault
	Waits   []Wait
	Losses  []Loss
	Steps   []Step
}

// day is the unit in which the scheduler sets the database's clock, so that how far off it was can
// be told from the time alone.
const day = 24 * time.Hour

// Days is how far the database's clock was off when it showed t.
func (h *History) Days(t time.Time) int {
	return int(math.Round(t.Sub(h.Began).Hours() / day.Hours()))
}

// True is the machine's time when the database's clock showed t.
func (h *History) True(t time.Time) time.Time {
	return t.Add(-time.Duration(h.Days(t)) * day)
}

// Lost tells whether what was done within a call may have been forgotten by the authority.
func (h *History) Lost(c Call) bool {
	for _, loss := range h.Losses {
		if c.Invoked.Before(loss.To) && (c.Returned.IsZero() || c.Returned.After(loss.From)) {
			return true
		}
	}
	return false
}

// unwritten is how long the server may take to write a commit to disk that did not wait for that: three
// times its wal_writer_delay of 100 ms, and the rest for a busy machine.
const unwritten = time.Second

// Unwritten tells whether what was committed by a time, without waiting for the disk, may have been lost before
// another time, in a crash too.
func (h *History) Unwritten(committed, before time.Time) bool {
	lost := func(from, to time.Time) bool {
		return committed.After(from.Add(-unwritten)) && committed.Before(to) && from.Before(before)
	}
	return slices.ContainsFunc(h.Losses, func(l Loss) bool { return lost(l.From, l.To) }) ||
		slices.ContainsFunc(h.Faults, func(f Fault) bool { return f.Kind == Crashed && lost(f.From, f.To) })
}

// Stepped tells whether the database's clock was set between two times of the machine's.
func (h *History) Stepped(from, to time.Time) bool {
	for _, s := range h.Steps {
		if !s.At.Before(from) && !s.At.After(to) {
			return true
		}
	}
	return false
}
