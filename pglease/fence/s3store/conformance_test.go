package s3store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/fencetest"
	"github.com/pglease/pglease/pglease/fence/s3store"
)

// A recorder keeps what the store took, each with what it was put over. So the order in which the
// store took pointers shows without any clock: each names the one before.
type recorder struct {
	s3store.Client

	mu   sync.Mutex
	data map[string]string
	next map[string]taken // by the ETag that it was put over; "" for none
}

type taken struct {
	etag    string
	token   fence.Token
	version int64
	data    string
}

func newRecorder(client s3store.Client) *recorder {
	return &recorder{Client: client, data: map[string]string{}, next: map[string]taken{}}
}

func (r *recorder) PutObject(ctx context.Context, in *s3.PutObjectInput, options ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	in, copied := again(in)
	out, err := r.Client.PutObject(ctx, in, options...)
	if err != nil {
		return out, err
	}
	body, _ := io.ReadAll(copied.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case strings.Contains(*in.Key, "/data/"):
		r.data[*in.Key] = string(body)
	case strings.HasSuffix(*in.Key, "/pointer"):
		return out, r.take(aws.ToString(in.IfMatch), etag(out), body)
	}
	return out, nil
}

func (r *recorder) take(over, etag string, body []byte) error {
	var p struct {
		Token   fence.Token `json:"token"`
		Version int64       `json:"version"`
		Data    string      `json:"data"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return err
	}
	if rival, ok := r.next[over]; ok {
		return fmt.Errorf("two pointers were taken over %q: %+v and %+v", over, rival, p)
	}
	r.next[over] = taken{etag, p.Token, p.Version, p.Data}
	return nil
}

// history follows the pointers from the first. The last must be the one that is there.
func (r *recorder) history(ctx context.Context, bucket, key string) (entries []fencetest.Entry, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := taken{}
	for range r.next {
		t, ok := r.next[last.etag]
		if !ok {
			return nil, fmt.Errorf("%d pointers were taken, and none over %q", len(r.next), last.etag)
		}
		if t.version != last.version {
			entries = append(entries, fencetest.Entry{Command: r.data[t.data], Fence: t.token.Fence(), LeaseID: t.token.LeaseID()})
		}
		last = t
	}
	out, err := r.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return entries, nil //nolint:nilerr // there is none yet
	}
	defer out.Body.Close()
	if aws.ToString(out.ETag) != last.etag {
		return nil, errors.New("the pointer that is there is not the one that was taken last")
	}
	return entries, nil
}

// A dying client's process dies before its pointer is sent. The data are there by then.
func dying(client s3store.Client, die *context.CancelFunc) s3store.Client {
	return tap{client, func(ctx context.Context, _ *s3.PutObjectInput, _ sender) (*s3.PutObjectOutput, error) {
		(*die)()
		return nil, ctx.Err()
	}}
}

func TestStoreConforms(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, client *s3.Client, bucket string) {
		fencetest.Run(t, func(t *testing.T) fencetest.Resource { return conforming(t, client, bucket) })
	})
}

// conforming returns a resource that four stores share. Its name is its own, so that the checks can
// share a bucket.
func conforming(t *testing.T, client *s3.Client, bucket string) fencetest.Resource {
	t.Helper()
	name := "resource/" + rnd()
	record := newRecorder(client)
	stores := make([]*s3store.Store, 4)
	for i := range stores {
		stores[i] = open(t, record, bucket)
	}
	var die context.CancelFunc
	mortal := open(t, dying(record, &die), bucket)
	one := func() *s3store.Store { return stores[rand.IntN(len(stores))] }
	put := func(ctx context.Context, store *s3store.Store, token fence.Token, c fencetest.Command) error {
		_, err := store.Put(ctx, token, object(c.ID))
		return err
	}
	return fencetest.Resource{
		Name: name,
		Write: func(ctx context.Context, token fence.Token, c fencetest.Command) error {
			return put(ctx, one(), token, c)
		},
		Establish: func(ctx context.Context, token fence.Token) error {
			_, err := one().Establish(ctx, token)
			return err
		},
		Crash: func(ctx context.Context, token fence.Token, c fencetest.Command) error {
			ctx, die = context.WithCancel(ctx)
			defer die()
			return put(ctx, mortal, token, c)
		},
		History: func(ctx context.Context) ([]fencetest.Entry, error) {
			return record.history(ctx, bucket, stores[0].PointerKey(name))
		},
	}
}
