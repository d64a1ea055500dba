package pglease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pglease/pglease/pglease/fence"
)

// maxDescribed is how many of those in line Describe lists.
const maxDescribed = 10_000

// A Description is what the database shows of a resource at one moment.
type Description struct {
	Resource  string
	Token     fence.Token // of the current tenure, or of the last one
	Held      bool
	Owner     string        // of the current tenure, or of the last one
	Fence     int64         // likewise; 0 where the resource was never acquired
	Since     time.Time     // likewise, by the database's clock
	Remaining time.Duration // until the lease ends unless it is renewed; 0 when it is not held
	Line      []InLine      // who waits, in order
	MeanHold  time.Duration // of the last tenures, twenty at most; 0 where none is on record
}

// InLine is one who waits.
type InLine struct {
	Owner   string
	Request RequestID
	Waited  time.Duration
	Mode    Mode
	Alive   bool // by its own word; one that died is known at the next hand-over
}

// Position tells how many are ahead of a request, and whether it waits at all.
func (d Description) Position(id RequestID) (ahead int, waiting bool) {
	for i, w := range d.Line {
		if w.Request == id {
			return i, true
		}
	}
	return 0, false
}

// EstimatedWait is how long one with that many ahead is likely to wait: what the holder has been
// seen to need, and as much again for each one ahead. It is 0 where no tenure is on record.
func (d Description) EstimatedWait(ahead int) time.Duration {
	return d.MeanHold * time.Duration(ahead+1)
}

// Describe reads a resource: who holds it, and who waits for it. It locks nothing.
func (c *Client) Describe(ctx context.Context, resource string) (Description, error) {
	if err := fence.CheckResource(resource); err != nil {
		return Description{}, &Error{Op: "describe", Resource: resource, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.RequestTimeout)
	defer cancel()
	seen, err := c.auth.Describe(ctx, resource, maxDescribed)
	if err != nil {
		return Description{}, &Error{Op: "describe", Resource: resource, Err: err}
	}
	d := Description{
		Resource: resource, Token: seen.Token, Held: seen.Current, Owner: seen.Owner, Fence: seen.Token.Fence(), Since: seen.Since, MeanHold: seen.MeanHold,
	}
	if d.Held {
		d.Remaining = max(seen.Remaining, 0)
	}
	for _, w := range seen.Line {
		in := InLine{Owner: w.Owner, Request: RequestID(w.Request), Waited: w.Waited, Alive: w.Alive}
		if w.Barging {
			in.Mode = Barging
		}
		d.Line = append(d.Line, in)
	}
	return d, nil
}

// MaxReasonLength is in bytes.
const MaxReasonLength = 1024

// Break ends another owner's lease: exactly the one that was seen, for a reason that is kept in the
// history beside by, the name of who did it. It does not stop the owner's work, which learns of it
// at its next renewal; only the fence does. Who waits is served at once, or as soon as a
// guarded transaction of the owner that is under way has ended. There is no lock delay: the person who
// breaks a lease has seen to it that its work has stopped, or that the fence stops it.
//
// The error matches ErrNotHeld when that lease is over already: look again.
func (c *Client) Break(ctx context.Context, seen Description, by, reason string) error {
	err := errors.Join(
		checkOwner(by), refuse(by == "", "who breaks the lease is not named"),
		refuse(reason == "" || len(reason) > MaxReasonLength, "the reason has %d bytes, not 1 to %d", len(reason), MaxReasonLength),
		refuse(!utf8.ValidString(reason) || strings.ContainsRune(reason, 0), "the reason is not valid UTF-8 without NUL"),
		refuse(seen.Token.IsZero(), "there was no lease to be seen"))
	if err != nil {
		return &Error{Op: "break", Resource: seen.Resource, Err: fmt.Errorf("%w: %w", ErrInvalidConfig, err)}
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.RequestTimeout)
	defer cancel()
	sent := time.Now()
	broken, next, err := c.auth.Break(ctx, seen.Token, by, reason)
	c.line.serve(ctx, sent, next)
	if err == nil && !broken {
		err = ErrNotHeld
	}
	if err != nil {
		return &Error{Op: "break", Resource: seen.Resource, Err: err}
	}
	return nil
}
