package s3store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/pglease/pglease/pglease/fence"
)

// Sweep deletes the data of a resource that no pointer can name any more: what was put under a
// fence below the stored one, except for the data that the pointer names. What the present owner has
// put and replaced stays until there is a next one. It returns how many objects were deleted, also
// with an error.
//
// It spares what is younger than minAge, by the clocks of this machine and of the store, for those
// who have read a pointer and not yet the data. One who comes too late reads the pointer again: Get
// does. Anybody may call it at any time; it needs no token, as a lower fence is over for good.
func (s *Store) Sweep(ctx context.Context, resource string, minAge time.Duration) (int, error) {
	n, err := s.sweep(ctx, resource, time.Now().Add(-minAge))
	return n, wrap("sweep", resource, err)
}

func (s *Store) sweep(ctx context.Context, resource string, before time.Time) (n int, err error) {
	if err := fence.CheckResource(resource); err != nil {
		return 0, err
	}
	cur, err := s.read(ctx, resource)
	if err != nil || cur.etag == "" {
		return 0, err
	}
	input := &s3.ListObjectsV2Input{Bucket: &s.config.Bucket, Prefix: aws.String(s.dataPrefix(resource))}
	for {
		page, err := s.client.ListObjectsV2(ctx, input)
		if err != nil {
			return n, err
		}
		for _, o := range page.Contents {
			if !s.swept(cur, o, before) {
				continue
			}
			if _, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.config.Bucket, Key: o.Key}); err != nil {
				return n, err
			}
			n++
		}
		if !aws.ToBool(page.IsTruncated) {
			return n, nil
		}
		input.ContinuationToken = page.NextContinuationToken
	}
}

// swept tells whether an object is of no use. A key of another form is not ours.
func (s *Store) swept(cur state, o types.Object, before time.Time) bool {
	name, ok := strings.CutPrefix(aws.ToString(o.Key), s.dataPrefix(cur.Token.Resource()))
	text, _, ok2 := strings.Cut(name, "-")
	number, err := strconv.ParseInt(text, 10, 64)
	return ok && ok2 && err == nil && number < cur.Token.Fence() && *o.Key != cur.Data &&
		o.LastModified != nil && o.LastModified.Before(before)
}
