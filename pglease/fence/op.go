package fence

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	// MaxKeyLength is the longest Key of an Op, in bytes.
	MaxKeyLength = 512

	// MaxResultSize is the largest result that an Op's Apply may return, 1 MiB.
	MaxResultSize = 1 << 20
)

// An Op is one command of an owner: the second level of the rule decides about it, when its token
// is not stale. The zero Op is a command of which nothing but the order of owners matters.
//
// The checks come in the order of the fields. A command that was accepted before is answered first,
// so that it can be repeated after later ones were accepted.
type Op struct {
	// Key is the idempotency key. A command with a key that the resource has accepted, under
	// whatever token, is not applied again: its recorded result comes back. At most 512 bytes.
	Key string

	// Sequence is the command's place among those of its token, from 1, without need to be
	// adjacent. One that is not above the last accepted is out of order; without a Key, the same
	// Sequence under the same token is a repetition. 0 is not checked.
	Sequence int64

	// ExpectedVersion is what Watermark.Version must be: 0 where no command may have been accepted
	// yet. Nil is not checked.
	ExpectedVersion *int64

	// Owner names the writer to people. Default: the Config's.
	Owner string

	// Apply makes the change, in the transaction that Advance was given and under the lock of the
	// watermark. Its result is recorded if the Op has a Key or a Sequence. It must not use the same
	// resource's watermark, nor end the transaction, by SQL neither: both are errors. Nil: the caller
	// makes the change itself, in the same transaction and after Advance, unless the Outcome is Repeated.
	Apply func(ctx context.Context, tx pgx.Tx) (result []byte, err error)
}

// An Outcome is the answer to a command that was accepted.
type Outcome struct {
	// Version counts the commands that the resource has accepted, this one included.
	Version int64

	// Established is set where this command was the first that the resource saw of its token.
	Established bool

	// Repeated is set where the command had been accepted before, and was not applied again.
	// Version and Result are then those of the first time.
	Repeated bool

	// Result is what Apply returned; nil for no bytes.
	Result []byte
}

func (op Op) check(token Token) error {
	if err := checkToken(token); err != nil {
		return err
	}
	switch {
	case len(op.Key) > MaxKeyLength:
		return fmt.Errorf("%w: the key has %d bytes, the limit is %d", ErrInvalidOp, len(op.Key), MaxKeyLength)
	case !isText(op.Key):
		return fmt.Errorf("%w: the key %q is not text", ErrInvalidOp, op.Key)
	case op.Sequence < 0:
		return fmt.Errorf("%w: the sequence is %d", ErrInvalidOp, op.Sequence)
	case op.ExpectedVersion != nil && *op.ExpectedVersion < 0:
		return fmt.Errorf("%w: the expected version is %d", ErrInvalidOp, *op.ExpectedVersion)
	}
	return checkOwner(op.Owner)
}

// plain tells that the first level alone decides.
func (op Op) plain() bool {
	return op.Key == "" && op.Sequence == 0 && op.ExpectedVersion == nil && op.Apply == nil
}
