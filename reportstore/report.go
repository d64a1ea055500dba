package reportstore

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pglease/pglease/pglease/fence"
)

const (
	// MaxBodySize is the largest body of a report in bytes, 64 MiB.
	MaxBodySize = 64 << 20

	// MaxOwnerLength is the longest owner name in bytes.
	MaxOwnerLength = 256

	// AnyVersion as a Report's ExpectedVersion replaces whatever version there is.
	AnyVersion int64 = -1
)

// A Report is what its owner wants to publish.
type Report struct {
	// ID names the report, and the resource whose token may write it: 1 to 512 bytes of UTF-8,
	// compared byte for byte.
	ID string

	// Body is the content, at most MaxBodySize bytes. Nil is an empty report. It is not kept after
	// the call, and must not change during it.
	Body []byte

	// ExpectedVersion is the version that the report must have: what the owner based its work on.
	// 0, the zero value, means that nothing may have been published yet; AnyVersion is not checked.
	ExpectedVersion int64

	// Owner names the writer to people. Default: the Config's.
	Owner string
}

// A Publication is the answer to an accepted write.
type Publication struct {
	Version     int64     // the version that holds the content now, from 1
	PublishedAt time.Time // by the database's clock
	Hash        [sha256.Size]byte

	// Repeated is set where the report held this very publication already: an earlier call with
	// the same token and content was accepted, and this one changed nothing.
	Repeated bool
}

// check refuses what no statement should carry. It comes before anything is sent.
func check(token fence.Token, id string) error {
	if err := fence.CheckResource(id); err != nil {
		return err
	}
	switch {
	case token.IsZero():
		return fmt.Errorf("%w: it is the zero token", fence.ErrInvalidToken)
	case token.Resource() != id:
		return fmt.Errorf("%w: the token is of %q", fence.ErrOtherResource, token.Resource())
	}
	return nil
}

func (r Report) check(token fence.Token) error {
	if err := check(token, r.ID); err != nil {
		return err
	}
	if err := checkOwner(r.Owner); err != nil {
		return err
	}
	switch {
	case r.ExpectedVersion < AnyVersion:
		return fmt.Errorf("%w: the expected version is %d", ErrInvalidReport, r.ExpectedVersion)
	case len(r.Body) > MaxBodySize:
		return fmt.Errorf("%w: the body has %d bytes, the limit is %d", ErrInvalidReport, len(r.Body), MaxBodySize)
	}
	return nil
}

func checkOwner(owner string) error {
	switch {
	case len(owner) > MaxOwnerLength:
		return fmt.Errorf("%w: the owner's name has %d bytes, the limit is %d", ErrInvalidReport, len(owner), MaxOwnerLength)
	case !utf8.ValidString(owner):
		return fmt.Errorf("%w: the owner's name %q is not valid UTF-8", ErrInvalidReport, owner)
	case strings.ContainsRune(owner, 0):
		return fmt.Errorf("%w: the owner's name %q contains a NUL", ErrInvalidReport, owner)
	}
	return nil
}
