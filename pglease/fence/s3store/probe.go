package s3store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// cleanupTime bounds the removal of what is of no use any more, which outlives the caller's context.
const cleanupTime = 5 * time.Second

// probe puts an object under true and false conditions. A store that does not know them says yes to
// all: it would also say yes to a stale owner.
func (s *Store) probe(ctx context.Context) error {
	key := s.config.Prefix + "probe." + newNonce()
	defer s.remove(ctx, key)

	first, err := s.probePut(ctx, "put if there is none", key, "", true)
	if err != nil {
		return err
	}
	if _, err := s.probePut(ctx, "put if there is none, over one", key, "", false); err != nil {
		return err
	}
	if _, err := s.probePut(ctx, "put over an object that never was", key, `"0123456789abcdef0123456789abcdef"`, false); err != nil {
		return err
	}
	second, err := s.probePut(ctx, "put over the object", key, first.etag, true)
	if err != nil {
		return err
	}
	if _, err := s.probePut(ctx, "put over an object that was", key, first.etag, false); err != nil {
		return err
	}
	body, etag, err := s.fetch(ctx, key)
	if err != nil {
		return err
	}
	if !bytes.Equal(body, second.body) || etag != second.etag {
		return fmt.Errorf("%w: what was put last is not what is there", ErrNoConditionalWrites)
	}
	return nil
}

// A probed object is what one step of the probe has put.
type probed struct {
	body []byte
	etag string
}

// probePut puts a new body, and returns an error unless the store's answer is the right one.
func (s *Store) probePut(ctx context.Context, what, key, etag string, right bool) (probed, error) {
	p := probed{body: []byte(newNonce())}
	var err error
	p.etag, err = s.putIf(ctx, key, p.body, etag)
	switch answer := answerOf(err); {
	case answer == taken && right, answer == lost && !right:
		return p, nil
	case answer == taken:
		return p, fmt.Errorf("%w: %s: it was taken", ErrNoConditionalWrites, what)
	case answer == lost, codeOf(err) == "NotImplemented":
		return p, fmt.Errorf("%w: %s: %w", ErrNoConditionalWrites, what, err)
	}
	return p, fmt.Errorf("%s: %w", what, err)
}

// putIf puts a body if the object has the ETag, or if there is none where that is empty. It sends
// the request once.
func (s *Store) putIf(ctx context.Context, key string, body []byte, etag string) (newETag string, err error) {
	input := &s3.PutObjectInput{
		Bucket: &s.config.Bucket, Key: &key, Body: bytes.NewReader(body), ContentType: aws.String("application/json"),
	}
	if etag == "" {
		input.IfNoneMatch = aws.String("*")
	} else {
		input.IfMatch = &etag
	}
	out, err := s.client.PutObject(ctx, input, once)
	if err != nil {
		return "", err
	}
	return aws.ToString(out.ETag), nil
}

// maxPointer is more than any pointer has.
const maxPointer = 64 << 10

// fetch reads a small object, body and ETag from one response.
func (s *Store) fetch(ctx context.Context, key string) (body []byte, etag string, err error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.config.Bucket, Key: &key})
	if err != nil {
		return nil, "", err
	}
	defer out.Body.Close()
	body, err = io.ReadAll(io.LimitReader(out.Body, maxPointer))
	if err != nil {
		return nil, "", err
	}
	return body, aws.ToString(out.ETag), nil
}

// remove deletes an object that nothing refers to. Where that fails it is left to Sweep, or to
// people.
func (s *Store) remove(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	_, _ = s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.config.Bucket, Key: &key})
}
