// Package fence carries a lease's fence to the resource that it protects, and holds the resource
// to it.
//
// A fence, or fencing token, is a number that grows with each grant of a resource. The protected
// resource remembers the greatest it has accepted and refuses whatever carries a lower one, in the
// same atomic step as the change itself. The holder of an old lease can then do no harm, however
// late its write arrives.
//
// Which piece is for which resource:
//
//	tables in the database of the leases    pglease.GuardedTx, Lease.Guard, pglease.GuardToken
//	tables in any Postgres                  Watermarks: Advance, Apply, Establish
//	a table with columns of its own for it  Column
//	a table that others write too           the SQL function fence_table
//	anything of one's own making            fencetest holds it to the rule
//
// Only the first refuses an owner whose lease is over when nobody newer has written yet. Everywhere
// else Establish comes first: see there. The page docs/fencing.md has the SQL of each, and what
// exactly each promises.
package fence

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pglease/pglease/pglease/internal/mint"
)

// MaxResourceLength is the longest name of a resource, in bytes.
const MaxResourceLength = 512

var (
	// ErrInvalidResource is returned for a name that no resource can have.
	ErrInvalidResource = errors.New("invalid resource name")

	// ErrInvalidToken is returned by Parse for a text that is not a token's.
	ErrInvalidToken = errors.New("invalid fence token")

	// ErrOtherResource is returned where tokens of two resources are compared: fences of
	// different resources have no order.
	ErrOtherResource = errors.New("fence tokens of different resources have no order")

	// ErrSharedFence is returned where two different leases carry the same fence. That needs two
	// writable servers on one timeline.
	ErrSharedFence = errors.New("two leases share a fence")

	// ErrStaleOwner is returned by a protected resource that has accepted a greater fence: the
	// write came from an owner whose lease is over, and nothing was changed.
	ErrStaleOwner = errors.New("stale owner")
)

// CheckResource returns an error that matches ErrInvalidResource unless name is 1 to 512 bytes of
// valid UTF-8 without control characters: a line break that came along with a token's text, from a
// file perhaps, would otherwise name another resource. Names are compared byte for byte: no case
// folding, no Unicode normalisation, no trimming.
func CheckResource(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidResource)
	case len(name) > MaxResourceLength:
		return fmt.Errorf("%w: it is %d bytes long, the limit is %d", ErrInvalidResource, len(name), MaxResourceLength)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: %q is not valid UTF-8", ErrInvalidResource, name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%w: %q contains a control character", ErrInvalidResource, name)
	}
	return nil
}

// LeaseID is the identity of one grant: a UUID. It has no order.
type LeaseID [16]byte

// String returns the UUID in its usual form, 36 characters.
func (id LeaseID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// A Token is proof that a resource was granted, and when in the order of its grants. Only a grant
// makes one; text made by String can carry it to another process. The zero Token is of no use and
// is refused everywhere.
type Token struct {
	resource string
	fence    int64
	lease    LeaseID
}

func init() {
	mint.Token = func(resource string, fence int64, lease [16]byte) any {
		return Token{resource: resource, fence: fence, lease: lease}
	}
}

// Resource is the name of the resource that was granted.
func (t Token) Resource() string { return t.resource }

// Fence grows with each grant of the resource. Only the order of fences means anything, never
// their distance: they advance with time as well as with grants. Below 2^53.
func (t Token) Fence() int64 { return t.fence }

// LeaseID is the identity of the grant. A protected resource keeps it beside the fence, so that
// two leases that came to share a number are still told apart.
func (t Token) LeaseID() LeaseID { return t.lease }

// IsZero tells whether t is the zero Token.
func (t Token) IsZero() bool { return t == Token{} }

// Compare returns a negative number when t was granted before u, zero when they are of the same
// grant, and a positive one when t was granted after u. Tokens of two resources have no order:
// the error then matches ErrOtherResource. Two leases that share a fence have no order either: the
// error then matches ErrSharedFence.
func (t Token) Compare(u Token) (int, error) {
	if t.resource != u.resource {
		return 0, fmt.Errorf("%w: %q and %q", ErrOtherResource, t.resource, u.resource)
	}
	if t.fence == u.fence && t.lease != u.lease {
		return 0, fmt.Errorf("%w: %q, fence %d", ErrSharedFence, t.resource, t.fence)
	}
	return cmp.Compare(t.fence, u.fence), nil
}

// String returns the text form: fence, lease id and resource, as in
//
//	42:0197a3c2-6c1e-7d6f-8f5b-2f1f6a0c9b11:report/2026-07
//
// The resource comes last, so it may contain colons. It is fit for an environment variable or a
// job's payload; for an HTTP header, escape it as the header's rules say.
func (t Token) String() string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.fence, 10) + ":" + t.lease.String() + ":" + t.resource
}

// Parse reads the text form. It accepts what String makes and nothing else; the error matches
// ErrInvalidToken.
func Parse(text string) (Token, error) {
	number, rest, ok := strings.Cut(text, ":")
	id, resource, ok2 := strings.Cut(rest, ":")
	if !ok || !ok2 {
		return Token{}, fmt.Errorf("%w: want fence:lease-id:resource", ErrInvalidToken)
	}
	fence, err := strconv.ParseInt(number, 10, 64)
	if err != nil || fence <= 0 || number != strconv.FormatInt(fence, 10) {
		return Token{}, fmt.Errorf("%w: the fence is not a positive whole number", ErrInvalidToken)
	}
	lease, err := parseLeaseID(id)
	if err != nil {
		return Token{}, err
	}
	if err := CheckResource(resource); err != nil {
		return Token{}, fmt.Errorf("%w: %w", ErrInvalidToken, err)
	}
	return Token{resource: resource, fence: fence, lease: lease}, nil
}

func parseLeaseID(text string) (LeaseID, error) {
	var id LeaseID
	digits := strings.ReplaceAll(text, "-", "")
	if len(digits) == 32 {
		for i := range id {
			b, err := strconv.ParseUint(digits[2*i:2*i+2], 16, 8)
			if err != nil {
				break
			}
			id[i] = byte(b)
		}
	}
	if id.String() != text || id == (LeaseID{}) {
		return LeaseID{}, fmt.Errorf("%w: the lease id is not a UUID in lower case", ErrInvalidToken)
	}
	return id, nil
}

// MarshalText makes the text form; the zero Token has none.
func (t Token) MarshalText() ([]byte, error) {
	if t.IsZero() {
		return nil, fmt.Errorf("%w: it is the zero token", ErrInvalidToken)
	}
	return []byte(t.String()), nil
}

// UnmarshalText reads the text form as Parse does.
func (t *Token) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*t = parsed
	return nil
}
