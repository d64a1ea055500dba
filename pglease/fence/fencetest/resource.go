package fencetest

import (
	"context"

	"github.com/pglease/pglease/pglease/fence"
)

// DefaultName is the name of a resource that gives none.
const DefaultName = "fencetest/resource"

// A Resource is what the suite knows of one protected thing. Its functions are called from many
// goroutines at once, and all but the Write and History may be nil.
type Resource struct {
	// Name is the resource that tokens are made for. Default: DefaultName.
	Name string

	// Write applies a command under a token. It returns nil when the command took effect, now or,
	// with Repeats, when it was sent before; an error of which fence.IsStale is true when the token
	// is stale; one that matches fence.ErrOutOfOrder or fence.ErrConflict when the token is good
	// and the command is not. Any other error fails the test: run again inside Write what a
	// database undid for a serialization failure.
	Write func(ctx context.Context, token fence.Token, c Command) error

	// History returns what took effect, the oldest first.
	History func(ctx context.Context) ([]Entry, error)

	// Establish raises the watermark and writes nothing. Its errors are as of Write.
	Establish func(ctx context.Context, token fence.Token) error

	// Grant returns a token of the resource, newer than all before, whose lease is current; the
	// token before it is superseded by that. Default: the suite makes tokens up. A resource that
	// asks the authority needs real ones.
	Grant func(ctx context.Context) (fence.Token, error)

	// Crash begins a Write and dies between its check and its effect, as a killed process does.
	// What it returns does not matter. The resource goes on being used.
	Crash func(ctx context.Context, token fence.Token, c Command) error

	// Sequences promises that a command is refused, with an error as of Write, when its Sequence
	// is below that of one that was accepted under the same token.
	Sequences bool

	// Repeats promises that a command takes effect once, however often it is sent under a token
	// that stays current.
	Repeats bool

	// KnowsGrants promises that a token is refused from the moment of a newer grant, also by a
	// resource that has not seen the newer token. It needs Grant.
	KnowsGrants bool

	// NoLeaseID admits that the resource keeps no lease id beside the fence, so that it cannot
	// tell apart two leases that share a fence.
	NoLeaseID bool
}

// A Command is one thing to do.
type Command struct {
	// ID names the command, and no other: text of 1 to 64 letters, digits, dots and dashes. It
	// serves as the idempotency key, and as the content.
	ID string

	// Sequence is the command's place among those of its token, from 1.
	Sequence int64
}

// An Entry is one command that took effect.
type Entry struct {
	Command string        // the command's ID
	Fence   int64         // the fence that it carried
	LeaseID fence.LeaseID // the lease that it came from; zero with NoLeaseID
}

func (r Resource) name() string {
	if r.Name == "" {
		return DefaultName
	}
	return r.Name
}
