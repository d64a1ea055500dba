package s3store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/pglease/pglease/pglease/fence/s3store"
)

// A tap is a client whose puts of pointers go through a function.
type tap struct {
	s3store.Client
	put func(ctx context.Context, in *s3.PutObjectInput, send sender) (*s3.PutObjectOutput, error)
}

type sender func(context.Context, *s3.PutObjectInput) (*s3.PutObjectOutput, error)

func (c tap) PutObject(ctx context.Context, in *s3.PutObjectInput, options ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	send := func(ctx context.Context, in *s3.PutObjectInput) (*s3.PutObjectOutput, error) {
		return c.Client.PutObject(ctx, in, options...)
	}
	if !strings.HasSuffix(*in.Key, "/pointer") {
		return send(ctx, in)
	}
	return c.put(ctx, in, send)
}

// again is the request once more: a body can be read once.
func again(in *s3.PutObjectInput) (first, second *s3.PutObjectInput) {
	body, err := io.ReadAll(in.Body)
	if err != nil {
		panic(err)
	}
	a, b := *in, *in
	a.Body, b.Body = bytes.NewReader(body), bytes.NewReader(body)
	return &a, &b
}

// errReset is what a client sees of a lost answer.
var errReset = errors.New("connection reset")

// failed is an answer of the store with this status and code.
func failed(status int, code string) error {
	return &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}},
		Err:      &smithy.GenericAPIError{Code: code},
	}
}

func etag(out *s3.PutObjectOutput) string { return aws.ToString(out.ETag) }

// firstTime has a client do something else with its first pointer.
func firstTime(client s3store.Client, do func(ctx context.Context, in *s3.PutObjectInput, send sender) (*s3.PutObjectOutput, error)) s3store.Client {
	done := false
	return tap{client, func(ctx context.Context, in *s3.PutObjectInput, send sender) (*s3.PutObjectOutput, error) {
		if done {
			return send(ctx, in)
		}
		done = true
		return do(ctx, in, send)
	}}
}
