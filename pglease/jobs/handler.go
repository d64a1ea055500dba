package jobs

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

// A Handler does one job. Its context ends when the claim is lost, with an error that matches
// ErrStaleClaim or is ErrUnconfirmed as the cause, and when a stopping worker's patience is over,
// with ErrStopping.
//
// A job whose handler returns nil is completed; the handler may also have done that itself, with
// CompleteTx in the transaction of its effect. Any other error fails the attempt, but for those of
// SnoozeFor, RetryAfter and Park, also wrapped. A panic fails it too.
//
// The context cannot stop a write that is on its way. What is written outside the transaction of
// CompleteTx must carry the claim's Token to a resource that checks it.
type Handler func(ctx context.Context, claim *Claim) error

type snoozeError struct{ delay time.Duration }

func (e *snoozeError) Error() string { return fmt.Sprintf("snoozed for %v", e.delay) }

// SnoozeFor returns an error with which a handler gives the job back until d from now. The attempt
// is not counted. d is above 0 and at most MaxDelay.
func SnoozeFor(d time.Duration) error { return &snoozeError{delay: d} }

type retryError struct {
	delay time.Duration
	err   error
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// RetryAfter returns an error with which a handler fails the attempt and names the pause before the
// next one. NoDelay and what is below 0 stand for none.
func RetryAfter(d time.Duration, err error) error {
	if d <= 0 {
		d = NoDelay
	}
	return &retryError{delay: min(d, MaxDelay), err: err}
}

type parkError struct{ err error }

func (e *parkError) Error() string { return e.err.Error() }
func (e *parkError) Unwrap() error { return e.err }

// Park returns an error with which a handler gives the job up, however many attempts are left.
func Park(err error) error { return &parkError{err: err} }

// failure says what a handler's error means for the job.
func failure(err error) Failure {
	f := Failure{Reason: reason(err)}
	var retry *retryError
	if errors.As(err, &retry) {
		f.Delay = retry.delay
	}
	var park *parkError
	f.Park = errors.As(err, &park)
	return f
}

// reason makes the text of any error fit to be stored: without NUL, as UTF-8, and not too long.
// An error that cannot be stored must not keep its job from being failed.
func reason(err error) string {
	const replacement = "\uFFFD"
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), replacement), "\x00", replacement)
	if len(text) > MaxErrorLength {
		text = strings.ToValidUTF8(text[:MaxErrorLength], "") // a rune that was cut in two goes
	}
	return text
}

// call runs the handler and makes a panic an error.
func (h Handler) call(ctx context.Context, claim *Claim) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return h(ctx, claim)
}
