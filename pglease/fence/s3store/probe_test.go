package s3store_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/pglease/pglease/pglease/fence/s3store"
)

// A lacking client's store lacks something of conditional writes.
type lacking struct {
	s3store.Client
	spoil func(*s3.PutObjectInput) error
}

func (c lacking) PutObject(ctx context.Context, in *s3.PutObjectInput, options ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	if err := c.spoil(in); err != nil {
		return nil, err
	}
	return c.Client.PutObject(ctx, in, options...)
}

func TestStoreWithoutConditionsIsRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*s3.PutObjectInput) error{
		"it ignores both":          func(in *s3.PutObjectInput) error { in.IfMatch, in.IfNoneMatch = nil, nil; return nil },
		"it ignores If-Match":      func(in *s3.PutObjectInput) error { in.IfMatch = nil; return nil },
		"it ignores If-None-Match": func(in *s3.PutObjectInput) error { in.IfNoneMatch = nil; return nil },
		"it looks at existence only": func(in *s3.PutObjectInput) error {
			if in.IfMatch != nil && !strings.HasPrefix(*in.IfMatch, `"0123`) {
				in.IfMatch = nil
			}
			return nil
		},
		"it knows no If-Match": func(in *s3.PutObjectInput) error {
			if in.IfMatch != nil {
				return failed(http.StatusNotImplemented, "NotImplemented")
			}
			return nil
		},
		"it refuses all": func(_ *s3.PutObjectInput) error { return failed(http.StatusPreconditionFailed, "PreconditionFailed") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := inProcess(t)
			bucket := newBucket(t, client)
			_, err := s3store.Open(t.Context(), lacking{client, spoil}, s3store.Config{Bucket: bucket})
			if !errors.Is(err, s3store.ErrNoConditionalWrites) {
				t.Errorf("got %v, want ErrNoConditionalWrites", err)
			}
			if left := keys(t, client, bucket, ""); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, client *s3.Client, bucket string) {
		open(t, client, bucket)
		if left := keys(t, client, bucket, ""); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
		_, err := s3store.Open(t.Context(), client, s3store.Config{Bucket: "no-such-bucket"})
		if err == nil || errors.Is(err, s3store.ErrNoConditionalWrites) {
			t.Errorf("without a bucket: got %v", err)
		}
	})
	_, err := s3store.Open(t.Context(), nil, s3store.Config{Prefix: strings.Repeat("p", 600), Owner: strings.Repeat("o", 600)})
	for _, problem := range []string{"client", "bucket", "prefix", "owner"} {
		if err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%v says nothing of the %s", err, problem)
		}
	}
}
