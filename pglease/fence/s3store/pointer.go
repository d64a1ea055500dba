package s3store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pglease/pglease/pglease/fence"
)

// format is the form of pointers that this version writes and reads.
const format = 1

// A pointer is the whole content of a resource's pointer object. Its bytes follow from its fields,
// so that the same pointer put twice is the same object.
type pointer struct {
	Format      int         `json:"format"`
	Token       fence.Token `json:"token"`
	Owner       string      `json:"owner,omitempty"`
	Nonce       string      `json:"nonce"`
	Version     int64       `json:"version"`
	Data        string      `json:"data,omitempty"` // a key; empty where there is no content, or none any more
	ContentType string      `json:"content_type,omitempty"`
	Size        int64       `json:"size"`
	Deleted     bool        `json:"deleted,omitempty"`
}

// A state is a pointer as it was read, with the ETag that it was read with. Both are zero where
// there is none.
type state struct {
	pointer
	etag string
}

// of tells whether the pointer is that of the token's lease.
func (s state) of(token fence.Token) bool { return s.Token == token }

// newer tells whether the token may not follow the pointer.
func (s state) newer(token fence.Token) bool {
	if s.etag == "" {
		return false
	}
	order, err := token.Compare(s.Token) // an error is that of a shared fence: read checks the resource
	return err != nil || order < 0
}

// raised is the pointer under another token and nonce.
func (s state) raised(token fence.Token, owner, nonce string) pointer {
	p := s.pointer
	p.Format, p.Token, p.Owner, p.Nonce = format, token, owner, nonce
	return p
}

func (s state) stale(token fence.Token, owner string) error {
	return &fence.StaleError{
		Resource: token.Resource(), Fence: token.Fence(), LeaseID: token.LeaseID(), Owner: owner,
		GreatestFence: s.Token.Fence(), GreatestLeaseID: s.Token.LeaseID(), GreatestOwner: s.Owner,
	}
}

// read reads a resource's pointer.
func (s *Store) read(ctx context.Context, resource string) (state, error) {
	body, etag, err := s.fetch(ctx, s.PointerKey(resource))
	if missing(err) {
		return state{}, nil
	}
	if err != nil {
		return state{}, err
	}
	read := state{etag: etag}
	if err := read.parse(body, resource); err != nil {
		return state{}, fmt.Errorf("%w: %s: %w", ErrDamaged, s.PointerKey(resource), err)
	}
	return read, nil
}

func (s *state) parse(body []byte, resource string) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&s.pointer); err != nil {
		return err
	}
	switch {
	case s.etag == "":
		return errors.New("it has no ETag")
	case s.Format != format:
		return fmt.Errorf("it has format %d, this version knows %d", s.Format, format)
	case s.Token.Resource() != resource:
		return fmt.Errorf("it is that of %q", s.Token.Resource())
	case s.Nonce == "" || s.Version < 0 || s.Deleted && s.Data != "":
		return errors.New("its fields are not as this package makes them")
	}
	return nil
}

// bytes are what is put.
func (p pointer) bytes() ([]byte, error) { return json.Marshal(p) }
