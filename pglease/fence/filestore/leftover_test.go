//go:build unix

package filestore_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/filestore"
)

// What lies in the bookkeeping, of whatever kind, is neither written through nor made the content.
func TestLeftoversAreReplaced(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(from, at string) error{"symbolic link": os.Symlink, "link": os.Link} {
		outside, dir := filepath.Join(t.TempDir(), "file"), t.TempDir()
		put(t, outside, "outside")
		store := open(t, dir, july)
		write(t, store, 1, "file", "old")
		for _, next := range []string{"next", "watermark.next"} {
			at := filepath.Join(dir, ".pglease", next)
			if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			if err := leave(outside, at); err != nil {
				t.Fatal(err)
			}
		}
		write(t, store, 2, "file", "new")
		stands(t, store, 2)
		if info, err := os.Lstat(filepath.Join(dir, "file")); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		if text, err := os.ReadFile(outside); err != nil || string(text) != "outside" {
			t.Errorf("%s: outside is %q, %v", name, text, err)
		}
	}
}

// Each refusal of a stale owner is passed to the recorder, and nothing else.
func TestRefusalsAreRecorded(t *testing.T) {
	t.Parallel()
	var kept []error
	failure := errors.New("no database")
	dir := t.TempDir()
	store, err := filestore.Open(dir, july, filestore.WithRecorder(func(_ context.Context, err error) error {
		kept = append(kept, err)
		return failure
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	write(t, store, 2, "file", "new")
	if err := store.Write(t.Context(), token(t, 2), "../file", nil); !errors.Is(err, filestore.ErrName) {
		t.Error(err)
	}
	for _, err := range []error{
		store.Write(t.Context(), token(t, 1), "file", nil),
		store.Remove(t.Context(), token(t, 1), "file"),
		store.Establish(t.Context(), token(t, 1)),
	} {
		if !fence.IsStale(err) || !errors.Is(err, failure) {
			t.Errorf("got %v", err)
		}
	}
	if len(kept) != 3 || fence.AsStale(kept[0]).GreatestFence != 2 {
		t.Errorf("recorded %v", kept)
	}
}
