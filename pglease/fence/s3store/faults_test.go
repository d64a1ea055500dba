package s3store_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/s3store"
)

// A pointer that is on its way when its owner stops arrives after the next owner's, which has the
// same content: the story that the fence in metadata fails.
func TestLatePointerIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, client *s3.Client, bucket string) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var arrive func(context.Context) error
		stopped := open(t, firstTime(client, func(_ context.Context, in *s3.PutObjectInput, send sender) (*s3.PutObjectOutput, error) {
			arrive = func(ctx context.Context) error { _, err := send(ctx, in); return err }
			stop()
			return nil, context.Canceled
		}), bucket)
		store := open(t, client, bucket)
		put(t, store, 1, "A", 1)

		_, err := stopped.Put(ctx, token(t, 1), object("B"))
		if !errors.Is(err, s3store.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
		put(t, store, 2, "A", 2)
		if err := arrive(t.Context()); err == nil {
			t.Error("the late pointer was taken")
		}
		holds(t, store, "A", 2, 2)
	})
}

// What happens to the first pointer of a put under fence 2, and what its writer must be told. The
// resource was last written under fence 1.
type fault struct {
	name    string
	sent    bool                                     // it arrives, and the answer is lost; else the request is
	then    func(t *testing.T, store *s3store.Store) // before the writer looks again
	want    []error                                  // none: it took effect, once
	text    string                                   // that july has then
	version int64
	fence   int64
}

func faults() []fault {
	nothing := func(*testing.T, *s3store.Store) {}
	by := func(number int, text string, version int64) func(*testing.T, *s3store.Store) {
		return func(t *testing.T, store *s3store.Store) { t.Helper(); put(t, store, number, text, version) }
	}
	return []fault{
		{name: "the answer is lost", sent: true, then: nothing, text: "new", version: 2, fence: 2},
		{name: "the request is lost", then: nothing, text: "new", version: 2, fence: 2},
		{name: "the request is lost, and the older owner writes", then: by(1, "older", 2), text: "new", version: 3, fence: 2},
		{
			name: "the answer is lost, and a newer owner writes", sent: true, then: by(3, "newer", 3),
			want: []error{fence.ErrStaleOwner, s3store.ErrUnknownOutcome}, text: "newer", version: 3, fence: 3,
		},
		{
			name: "the request is lost, and a newer owner writes", then: by(3, "newer", 2),
			want: []error{fence.ErrStaleOwner, s3store.ErrUnknownOutcome}, text: "newer", version: 2, fence: 3,
		},
		{
			name: "the answer is lost, and the same lease writes", sent: true, then: by(2, "other", 3),
			want: []error{s3store.ErrUnknownOutcome}, text: "other", version: 3, fence: 2,
		},
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, client *s3.Client, bucket string) { meet(t, f, client, bucket) })
		})
	}
}

func meet(t *testing.T, f fault, client *s3.Client, bucket string) {
	t.Helper()
	store := open(t, client, bucket)
	put(t, store, 1, "old", 1)
	faulty := open(t, firstTime(client, func(ctx context.Context, in *s3.PutObjectInput, send sender) (*s3.PutObjectOutput, error) {
		if f.sent {
			if _, err := send(ctx, in); err != nil {
				t.Error(err)
			}
		}
		f.then(t, store)
		return nil, errReset
	}), bucket)

	_, err := faulty.Put(t.Context(), token(t, 2), object("new"))
	if len(f.want) == 0 && err != nil {
		t.Error(err)
	}
	for _, want := range f.want {
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if fence.IsStale(err) && f.fence == 2 {
		t.Errorf("got %v, and nobody is newer", err)
	}
	holds(t, store, f.text, f.version, f.fence)
}

// A refusal for another reason changes nothing, and leaves nothing.
func TestRefusedPointer(t *testing.T) {
	t.Parallel()
	client := inProcess(t)
	bucket := newBucket(t, client)
	store := open(t, firstTime(client, func(context.Context, *s3.PutObjectInput, sender) (*s3.PutObjectOutput, error) {
		return nil, failed(http.StatusForbidden, "AccessDenied")
	}), bucket)
	_, err := store.Put(t.Context(), token(t, 1), object("text"))
	if err == nil || errors.Is(err, s3store.ErrUnknownOutcome) {
		t.Errorf("got %v, want a plain refusal", err)
	}
	if left := keys(t, client, bucket, ""); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// A store that answers no put is given up, and the writer is not told that nothing happened.
func TestNoAnswerEnds(t *testing.T) {
	t.Parallel()
	client := inProcess(t)
	opened := false
	var silent s3store.Client = silenced{client, &opened}
	store := open(t, silent, newBucket(t, client))
	opened = true
	synctest.Test(t, func(t *testing.T) {
		if _, err := store.Establish(t.Context(), token(t, 1)); !errors.Is(err, s3store.ErrUnknownOutcome) || !errors.Is(err, errReset) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
	})
}

// A silenced client finds nothing and gets no answer to a put, without asking anybody, once opened.
type silenced struct {
	s3store.Client
	opened *bool
}

func (c silenced) GetObject(ctx context.Context, in *s3.GetObjectInput, options ...func(*s3.Options)) (*s3.GetObjectOutput, error) {
	if *c.opened {
		return nil, failed(http.StatusNotFound, "NoSuchKey")
	}
	return c.Client.GetObject(ctx, in, options...)
}

func (c silenced) PutObject(ctx context.Context, in *s3.PutObjectInput, options ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	if *c.opened {
		return nil, errReset
	}
	return c.Client.PutObject(ctx, in, options...)
}
