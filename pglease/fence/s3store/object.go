package s3store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/pglease/pglease/pglease/fence"
)

// An Object is what Put stores.
type Object struct {
	// Body is read from its present position to its end, more than once where the client repeats
	// a request. Nil is an empty one. At most 5 GiB, what S3 takes in one piece.
	Body io.ReadSeeker

	// ContentType goes with it. Default: the store's.
	ContentType string

	// ExpectedVersion is what Version.Number must be: 0 where nothing may have been put yet. Nil is
	// not checked.
	ExpectedVersion *int64
}

// A Version is what a resource's pointer says.
type Version struct {
	Number      int64 // counts the puts and deletions that the resource has accepted
	Fence       int64 // the newest that the resource has accepted; of the owner, not of this content's writer
	LeaseID     fence.LeaseID
	Owner       string // may be empty
	ContentType string
	Size        int64
	Key         string // of the data; empty where there is none
	Deleted     bool
}

func (p pointer) version() Version {
	return Version{
		Number: p.Version, Fence: p.Token.Fence(), LeaseID: p.Token.LeaseID(), Owner: p.Owner,
		ContentType: p.ContentType, Size: p.Size, Key: p.Data, Deleted: p.Deleted,
	}
}

// Put stores an object as that of the token's resource.
//
// The error matches fence.ErrStaleOwner (a *fence.StaleError) or fence.ErrConflict (a
// *fence.ConflictError, the token's fence is then stored), fence.ErrInvalidToken or ErrDamaged:
// nothing was changed. Or it matches ErrUnknownOutcome: the object may have been stored, also
// beside one of the former. Any other is the client's or the context's, and nothing was changed.
func (s *Store) Put(ctx context.Context, token fence.Token, o Object) (Version, error) {
	u := &upload{store: s, token: token, object: o, key: ""}
	v, err := s.advance(ctx, token, func(ctx context.Context, p *pointer) error {
		if o.ExpectedVersion != nil && *o.ExpectedVersion != p.Version {
			return &fence.ConflictError{Expected: *o.ExpectedVersion, Actual: p.Version}
		}
		if err := u.send(ctx); err != nil {
			return err
		}
		p.Version++
		p.Data, p.ContentType, p.Size, p.Deleted = u.key, o.ContentType, u.size, false
		return nil
	})
	if err != nil && u.key != "" && !errors.Is(err, ErrUnknownOutcome) {
		s.remove(ctx, u.key) // no pointer names it, and none will
	}
	return v, s.config.Recorder.Keep(ctx, wrap("put", token.Resource(), err))
}

// Delete stores that there is no object any more. The fence is kept. That there was none is no
// error, and counts as a version all the same. Errors are as of Put.
func (s *Store) Delete(ctx context.Context, token fence.Token) (Version, error) {
	v, err := s.advance(ctx, token, func(_ context.Context, p *pointer) error {
		p.Version++
		p.Data, p.ContentType, p.Size, p.Deleted = "", "", 0, true
		return nil
	})
	return v, s.config.Recorder.Keep(ctx, wrap("delete", token.Resource(), err))
}

// Establish stores the token's fence and changes nothing else. Call it when the lease was granted,
// before reading what the work is based on: from then on no write of an earlier owner is accepted,
// and the version that it returns stays until this owner writes. Doing so again is harmless. Errors
// are as of Put.
func (s *Store) Establish(ctx context.Context, token fence.Token) (Version, error) {
	v, err := s.advance(ctx, token, func(context.Context, *pointer) error { return nil })
	return v, s.config.Recorder.Keep(ctx, wrap("establish", token.Resource(), err))
}

// Get returns the object of a resource, and its version. Close the body after use. The error matches
// fence.ErrNotFound where nothing was put yet or it was deleted, fence.ErrInvalidResource or
// ErrDamaged, or is the client's.
func (s *Store) Get(ctx context.Context, resource string) (io.ReadCloser, Version, error) {
	body, v, err := s.get(ctx, resource)
	if err != nil {
		return nil, Version{}, wrap("get", resource, err)
	}
	return body, v, nil
}

func (s *Store) get(ctx context.Context, resource string) (io.ReadCloser, Version, error) {
	if err := fence.CheckResource(resource); err != nil {
		return nil, Version{}, err
	}
	for gone := ""; ; {
		cur, err := s.read(ctx, resource)
		switch {
		case err != nil:
			return nil, Version{}, err
		case cur.Data == "":
			return nil, Version{}, fence.ErrNotFound
		case cur.Data == gone:
			return nil, Version{}, fmt.Errorf("%w: there is no %s", ErrDamaged, gone)
		}
		out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.config.Bucket, Key: &cur.Data})
		if err == nil {
			return out.Body, cur.version(), nil
		}
		if !missing(err) {
			return nil, Version{}, err
		}
		gone = cur.Data // swept, since the pointer was read: it must have moved on
	}
}

// Watermark returns the newest fence that a resource has accepted. Since and LastSequence are zero:
// they are not kept. The error matches fence.ErrNotFound where it has seen no token,
// fence.ErrInvalidResource or ErrDamaged, or is the client's.
func (s *Store) Watermark(ctx context.Context, resource string) (fence.Watermark, error) {
	if err := fence.CheckResource(resource); err != nil {
		return fence.Watermark{}, wrap("watermark", resource, err)
	}
	cur, err := s.read(ctx, resource)
	if err == nil && cur.etag == "" {
		err = fence.ErrNotFound
	}
	if err != nil {
		return fence.Watermark{}, wrap("watermark", resource, err)
	}
	return fence.Watermark{
		Fence: cur.Token.Fence(), LeaseID: cur.Token.LeaseID(), Owner: cur.Owner, Version: cur.Version,
	}, nil
}

// An upload puts the data of one write, once.
type upload struct {
	store  *Store
	token  fence.Token
	object Object
	key    string // empty until it is there
	size   int64
}

func (u *upload) send(ctx context.Context) error {
	if u.key != "" {
		return nil
	}
	input := &s3.PutObjectInput{
		Bucket: &u.store.config.Bucket, Key: aws.String(u.store.dataKey(u.token, newNonce())), IfNoneMatch: aws.String("*"),
	}
	if u.object.ContentType != "" {
		input.ContentType = &u.object.ContentType
	}
	if u.object.Body != nil {
		size, err := remaining(u.object.Body)
		if err != nil {
			return err
		}
		u.size, input.Body, input.ContentLength = size, u.object.Body, &size
	}
	_, err := u.store.client.PutObject(ctx, input)
	// Nobody else has this key: that it is taken says that a try of the client's was, whose answer
	// was lost.
	if err != nil && answerOf(err) != lost {
		return err
	}
	u.key = *input.Key
	return nil
}

// remaining is the length of what is still to be read.
func remaining(r io.Seeker) (int64, error) {
	at, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	end, err := r.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	_, err = r.Seek(at, io.SeekStart)
	return end - at, err
}
