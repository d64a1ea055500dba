//go:build unix

package filestore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/filestore"
)

func TestNamesAreRefused(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	put(t, outside+"/file", "outside")
	put(t, dir+"/file", "inside")
	put(t, dir+"/sub/file", "inside")
	if err := os.Mkdir(dir+"/another", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, open(t, dir+"/another", july), 5, "file", "another's") // a store below this one
	for link, target := range map[string]string{
		"out": outside, "outfile": outside + "/file", "inlink": "file", "sublink": "sub", "up": "..", "own": ".pglease", "dangling": "nowhere",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	store := open(t, dir, july)
	write(t, store, 1, "good", "text")
	for _, name := range []string{
		"", ".", "..", "/", "/file", "../file", "sub/../file", "./file", "sub//file", "sub/", "sub", "pipe", "nul\x00", "bad\xff",
		"out/file", "outfile", "inlink", "sublink/file", "up/file", "own/watermark", "dangling", "file/below",
		".pglease", ".pglease/watermark", ".pglease/other", ".PGlease/watermark",
		"sub/.pglease", "sub/.pglease/watermark", "sub/.PGLEASE/watermark", "another/.pglease/watermark", "another/file", "another/new", "another/sub/new",
	} {
		errs := []error{
			store.Write(t.Context(), token(t, 1), name, []byte("bad")),
			store.Remove(t.Context(), token(t, 1), name),
		}
		_, err := store.Read(name)
		for i, err := range append(errs, err) {
			if !errors.Is(err, filestore.ErrName) {
				t.Errorf("%q, call %d: got %v, want ErrName", name, i, err)
			}
		}
	}
	for path, text := range map[string]string{outside + "/file": "outside", dir + "/file": "inside", dir + "/sub/file": "inside", dir + "/another/file": "another's"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%s holds %q, %v; want %q", path, got, err, text)
		}
	}
	stands(t, store, 1)
}

// What cannot be read is not guessed: nobody is let in.
func TestDamagedWatermarkIsRefused(t *testing.T) {
	t.Parallel()
	const good = "pglease fence 1\n7:0197a3c2-6c1e-7d6f-8f5b-000000000007:" + july + "\n"
	damage := map[string]func(t *testing.T, dir string){
		"emptied":  func(t *testing.T, dir string) { put(t, dir+"/.pglease/watermark", "") },
		"cut":      func(t *testing.T, dir string) { put(t, dir+"/.pglease/watermark", good[:len(good)-1]) },
		"newer":    func(t *testing.T, dir string) { put(t, dir+"/.pglease/watermark", strings.Replace(good, "1", "2", 1)) },
		"no fence": func(t *testing.T, dir string) { put(t, dir+"/.pglease/watermark", strings.Replace(good, "7:", ":", 1)) },
		"linked": func(t *testing.T, dir string) {
			put(t, dir+"/elsewhere", good)
			remove(t, dir+"/.pglease/watermark")
			link(t, "../elsewhere", dir+"/.pglease/watermark")
		},
		"bookkeeping is linked": func(t *testing.T, dir string) {
			put(t, dir+"/elsewhere/watermark", good)
			remove(t, dir+"/.pglease")
			link(t, "elsewhere", dir+"/.pglease")
		},
		"bookkeeping is a file": func(t *testing.T, dir string) {
			remove(t, dir+"/.pglease")
			put(t, dir+"/.pglease", good)
		},
	}
	for name, do := range damage {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			store := open(t, dir, july)
			write(t, store, 7, "file", "text")
			do(t, dir)
			_, err := store.Watermark()
			for i, err := range []error{
				err,
				store.Write(t.Context(), token(t, 8), "file", []byte("bad")),
				store.Remove(t.Context(), token(t, 8), "file"),
				store.Establish(t.Context(), token(t, 8)),
			} {
				if !errors.Is(err, filestore.ErrDamaged) {
					t.Errorf("call %d: got %v, want ErrDamaged", i, err)
				}
			}
			holds(t, store, "file", "text")
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func TestDirectoryBelongsToOneResource(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, other := open(t, dir, july), open(t, dir, "report/2026-08")
	if err := store.Write(t.Context(), fence.Token{}, "file", nil); !errors.Is(err, fence.ErrInvalidToken) {
		t.Errorf("the zero token: got %v", err)
	}
	if _, err := store.Watermark(); !errors.Is(err, fence.ErrNotFound) {
		t.Errorf("the watermark of an untouched directory: got %v", err)
	}
	if err := other.Write(t.Context(), token(t, 1), "file", nil); !errors.Is(err, fence.ErrOtherResource) {
		t.Errorf("another resource's token: got %v", err)
	}
	write(t, store, 1, "file", "text")
	august, err := fence.Parse("9:0197a3c2-6c1e-7d6f-8f5b-000000000009:report/2026-08")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Write(t.Context(), august, "file", nil); !errors.Is(err, fence.ErrOtherResource) {
		t.Errorf("a directory that is taken: got %v", err)
	}
	if _, err := filestore.Open(dir, ""); !errors.Is(err, fence.ErrInvalidResource) {
		t.Errorf("no resource: got %v", err)
	}
	if _, err := filestore.Open(dir+"/none", july); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: got %v", err)
	}
}

func TestStaleErrorTellsBoth(t *testing.T) {
	t.Parallel()
	store := open(t, t.TempDir(), july)
	write(t, store, 2, "file", "text")
	shared, err := parse(2, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, late := range []fence.Token{token(t, 1), shared} {
		err := store.Remove(t.Context(), late, "file")
		stale := fence.AsStale(err)
		if stale == nil || !errors.Is(err, fence.ErrStaleOwner) {
			t.Fatalf("got %v, want a stale owner", err)
		}
		if stale.Fence != late.Fence() || stale.LeaseID != late.LeaseID() || stale.GreatestFence != 2 ||
			stale.GreatestLeaseID != token(t, 2).LeaseID() || stale.Since.IsZero() {
			t.Errorf("got %+v", stale)
		}
	}
	holds(t, store, "file", "text")
}

// The context bounds the wait for a lock that a stopped process keeps.
func TestWaitForTheLockEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := open(t, dir, july)
	write(t, store, 1, "file", "text")
	holder, err := os.Open(dir + "/.pglease")
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if err := syscall.Flock(int(holder.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	reason := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, reason)
	defer cancel()
	for range 2 { // while it waits for the kernel; and when the context had ended before
		if err := store.Write(ctx, token(t, 2), "file", []byte("bad")); !errors.Is(err, reason) {
			t.Errorf("got %v, want the context's cause", err)
		}
	}
	stands(t, store, 1)
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, store, 2, "file", "free again")
}

func TestRemove(t *testing.T) {
	t.Parallel()
	store := open(t, t.TempDir(), july)
	write(t, store, 1, "a/b/file", "text")
	for range 2 { // that there is none is no error
		if err := store.Remove(t.Context(), token(t, 2), "a/b/file"); err != nil {
			t.Error(err)
		}
	}
	holds(t, store, "a/b/file", "")
	stands(t, store, 2) // it outlives the file
	if err := store.Write(t.Context(), token(t, 1), "a/b/file", nil); !fence.IsStale(err) {
		t.Errorf("got %v, want a stale owner", err)
	}
}
