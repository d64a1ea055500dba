package s3store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/s3store"
)

func TestPutGetDelete(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, client *s3.Client, bucket string) {
		store, ctx := open(t, client, bucket), t.Context()
		if _, _, err := store.Get(ctx, july); !errors.Is(err, fence.ErrNotFound) {
			t.Errorf("get before the first put: %v", err)
		}
		if _, err := store.Watermark(ctx, july); !errors.Is(err, fence.ErrNotFound) {
			t.Errorf("watermark before the first put: %v", err)
		}
		put(t, store, 1, "one", 1)
		holds(t, store, "one", 1, 1)

		v, err := store.Establish(ctx, token(t, 2))
		if err != nil || v.Number != 1 || v.Fence != 2 || v.Key == "" {
			t.Errorf("establish: %+v, %v", v, err)
		}
		holds(t, store, "one", 1, 2)
		if _, err := store.Put(ctx, token(t, 1), object("late")); !errors.Is(err, fence.ErrStaleOwner) || errors.Is(err, s3store.ErrUnknownOutcome) {
			t.Errorf("got %v, want a stale owner", err)
		}

		// The fence outlives the object.
		v, err = store.Delete(ctx, token(t, 2))
		if err != nil || v.Number != 2 || !v.Deleted || v.Key != "" {
			t.Errorf("delete: %+v, %v", v, err)
		}
		holds(t, store, "", 2, 2)
		if _, err := store.Delete(ctx, token(t, 1)); !fence.IsStale(err) {
			t.Errorf("got %v, want a stale owner", err)
		}
		put(t, store, 3, "", 3) // an empty object is one
		if _, v, err := store.Get(ctx, july); err != nil || v.Size != 0 || v.Number != 3 {
			t.Errorf("got %+v, %v", v, err)
		}
	})
}

func TestExpectedVersion(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, client *s3.Client, bucket string) {
		store := open(t, client, bucket)
		expect := func(by int, version int64, text string) error {
			_, err := store.Put(t.Context(), token(t, by), s3store.Object{Body: strings.NewReader(text), ExpectedVersion: &version})
			return err
		}
		if err := expect(1, 0, "one"); err != nil {
			t.Fatal(err)
		}
		var conflict *fence.ConflictError
		if err := expect(1, 0, "two"); !errors.As(err, &conflict) || conflict.Actual != 1 || conflict.Expected != 0 {
			t.Errorf("got %v, want a conflict", err)
		}
		// A newer owner that is wrong about the version shuts out the older one all the same.
		if err := expect(2, 7, "three"); !errors.Is(err, fence.ErrConflict) {
			t.Errorf("got %v, want a conflict", err)
		}
		holds(t, store, "one", 1, 2)
		if err := expect(1, 1, "late"); !fence.IsStale(err) {
			t.Errorf("got %v, want a stale owner", err)
		}
		if err := expect(2, 1, "two"); err != nil {
			t.Error(err)
		}
		holds(t, store, "two", 2, 2)
		if data := keys(t, client, bucket, "/data/"); len(data) != 2 {
			t.Errorf("the data are %v, want those of two puts", data)
		}
	})
}

func TestStaleErrorTellsBoth(t *testing.T) {
	t.Parallel()
	client := inProcess(t)
	store := open(t, client, newBucket(t, client))
	put(t, store, 2, "text", 1)
	for _, late := range []fence.Token{token(t, 1), parse(t, 2, 3)} {
		_, err := store.Put(t.Context(), late, object("late"))
		stale := fence.AsStale(err)
		if stale == nil {
			t.Fatalf("got %v, want a stale owner", err)
		}
		if stale.Fence != late.Fence() || stale.LeaseID != late.LeaseID() || stale.Owner != "tester" ||
			stale.GreatestFence != 2 || stale.GreatestLeaseID != token(t, 2).LeaseID() || stale.GreatestOwner != "tester" {
			t.Errorf("got %+v", stale)
		}
	}
	if _, err := store.Put(t.Context(), fence.Token{}, object("")); !errors.Is(err, fence.ErrInvalidToken) {
		t.Errorf("the zero token: got %v", err)
	}
	if _, _, err := store.Get(t.Context(), ""); !errors.Is(err, fence.ErrInvalidResource) {
		t.Errorf("no name: got %v", err)
	}
}

// Each refusal of a stale owner is passed to the recorder, and nothing else.
func TestRefusalsAreRecorded(t *testing.T) {
	t.Parallel()
	client := inProcess(t)
	bucket := newBucket(t, client)
	var kept []error
	failure := errors.New("no database")
	store, err := s3store.Open(t.Context(), client, s3store.Config{Bucket: bucket, Recorder: func(_ context.Context, err error) error {
		kept = append(kept, err)
		return failure
	}})
	if err != nil {
		t.Fatal(err)
	}
	put(t, store, 2, "text", 1)
	_, byPut := store.Put(t.Context(), token(t, 1), object("late"))
	_, byDelete := store.Delete(t.Context(), token(t, 1))
	_, byEstablish := store.Establish(t.Context(), token(t, 1))
	for _, err := range []error{byPut, byDelete, byEstablish} {
		if !fence.IsStale(err) || !errors.Is(err, failure) {
			t.Errorf("got %v", err)
		}
	}
	if len(kept) != 3 || fence.AsStale(kept[0]).GreatestFence != 2 {
		t.Errorf("recorded %v", kept)
	}
	if _, err := store.Put(t.Context(), token(t, 2), s3store.Object{ExpectedVersion: new(int64(9))}); !errors.Is(err, fence.ErrConflict) || len(kept) != 3 {
		t.Errorf("got %v; recorded %v", err, kept)
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, client *s3.Client, bucket string) {
		store := open(t, client, bucket)
		sweep := func(want int) {
			t.Helper()
			n, err := store.Sweep(t.Context(), july, -time.Hour) // as if an hour had passed
			if err != nil || n != want {
				t.Errorf("%d objects were deleted, %v; want %d", n, err, want)
			}
		}
		sweep(0)
		put(t, store, 1, "a", 1)
		put(t, store, 1, "b", 2)
		put(t, store, 1, "c", 3)
		sweep(0) // the owner may be about to point to any of them
		if _, err := store.Establish(t.Context(), token(t, 2)); err != nil {
			t.Fatal(err)
		}
		if n, err := store.Sweep(t.Context(), july, time.Hour); n != 0 || err != nil {
			t.Errorf("%d young objects were deleted, %v", n, err)
		}
		sweep(2)
		holds(t, store, "c", 3, 2)
		put(t, store, 2, "d", 4)
		sweep(1)
		holds(t, store, "d", 4, 2)
	})
}

// What cannot be read is not guessed.
func TestDamagedPointerIsRefused(t *testing.T) {
	t.Parallel()
	client := inProcess(t)
	bucket := newBucket(t, client)
	store := open(t, client, bucket)
	const good = `{"format":1,"token":"7:0197a3c2-6c1e-7d6f-8f5b-000000000007:` + july + `","nonce":"n","version":1,"size":0}`
	key := store.PointerKey(july)
	overwrite(t, client, bucket, key, good)
	if mark, err := store.Watermark(t.Context(), july); err != nil || mark.Fence != 7 {
		t.Fatalf("the good one: %+v, %v", mark, err)
	}
	for _, bad := range []string{
		"", "{", "null", "{}", strings.Replace(good, "7:", ":", 1), strings.Replace(good, "2026-07", "2026-08", 1),
		strings.Replace(good, `"format":1`, `"format":2`, 1), strings.Replace(good, `"size"`, `"extent"`, 1),
		strings.Replace(good, `"n"`, `""`, 1), strings.Replace(good, `"version":1`, `"version":-1`, 1),
	} {
		overwrite(t, client, bucket, key, bad)
		_, err := store.Put(t.Context(), token(t, 8), object("text"))
		_, err2 := store.Establish(t.Context(), token(t, 8))
		_, _, err3 := store.Get(t.Context(), july)
		for i, err := range []error{err, err2, err3} {
			if !errors.Is(err, s3store.ErrDamaged) {
				t.Errorf("%s: call %d: got %v, want ErrDamaged", bad, i, err)
			}
		}
	}
	overwrite(t, client, bucket, key, strings.Replace(good, `"size"`, `"data":"nowhere","size"`, 1))
	if _, _, err := store.Get(t.Context(), july); !errors.Is(err, s3store.ErrDamaged) {
		t.Errorf("data that are not there: got %v", err)
	}
}

func TestKeysTellNamesApart(t *testing.T) {
	t.Parallel()
	client := inProcess(t)
	store := open(t, client, newBucket(t, client))
	seen := map[string]string{}
	for _, name := range []string{"a/b", "a-b", "a b", "A/b", "..", "../..", "ä/b", strings.Repeat("x", 512), strings.Repeat("x", 511)} {
		key := store.PointerKey(name)
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q have the key %s", name, other, key)
		}
		seen[key] = name
		if !strings.HasPrefix(key, "leases/") || strings.Contains(key, "..") || len(key) > 200 {
			t.Errorf("%q has the key %s", name, key)
		}
	}
}
