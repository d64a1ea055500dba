//go:build unix

package filestore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pglease/pglease/pglease/fence"
)

// A step is a point at which a process may be killed, and what it leaves.
type step struct {
	name  string
	fence int    // of the watermark
	text  string // of the file
}

// The steps of a write by the second owner over one of the first.
func writeSteps() []step {
	return []step{
		{"locked", 1, "old"},
		{"watermark written", 1, "old"},
		{"watermark synced", 1, "old"},
		{"watermark renamed", 2, "old"},
		{"watermark durable", 2, "old"},
		{"content written", 2, "old"},
		{"content synced", 2, "old"},
		{"directories made", 2, "old"},
		{"content renamed", 2, "new"},
		{"directory synced", 2, "new"},
	}
}

func TestKilledAtEachStepOfAWrite(t *testing.T) {
	t.Parallel()
	for _, s := range writeSteps() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			survives(t, s, job{Text: "new"})
		})
	}
}

func TestKilledAtEachStepOfARemoval(t *testing.T) {
	t.Parallel()
	for _, s := range []step{{"watermark durable", 2, "old"}, {"file removed", 2, ""}, {"directory synced", 2, ""}} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			survives(t, s, job{Remove: true})
		})
	}
}

func survives(t *testing.T, s step, j job) {
	t.Helper()
	const name = "2026/07/summary"
	dir := t.TempDir()
	store := open(t, dir, july)
	write(t, store, 1, name, "old")

	j.Dir, j.Resource, j.Name, j.DieAt, j.Owners = dir, july, name, s.name, []fence.Token{token(t, 2)}
	if err := killed(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	holds(t, store, name, s.text)
	stands(t, store, s.fence)

	if s.fence == 1 { // the second owner's fence was not accepted: the first may go on
		write(t, store, 1, name, "again")
	}
	write(t, store, 2, name, "newer")
	if err := store.Write(t.Context(), token(t, 1), name, []byte("late")); !fence.IsStale(err) {
		t.Errorf("the first owner's write: got %v, want a stale owner", err)
	}
	holds(t, store, name, "newer")
	stands(t, store, 2)
	onlyThese(t, dir, ".pglease/watermark", name)
}

// onlyThese fails the test if anything else is left in a directory.
func onlyThese(t *testing.T, dir string, want ...string) {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			files = append(files, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil || !slices.Equal(files, want) {
		t.Errorf("the directory has %v, %v; want %v", files, err, want)
	}
}

// The steps above are all there are.
func TestStepsAreKnown(t *testing.T) {
	t.Parallel()
	store := open(t, t.TempDir(), july)
	write(t, store, 1, "a/file", "old")
	var got, want []string
	store.OnStep(func(name string) { got = append(got, name) })
	write(t, store, 2, "a/file", "new")
	for _, s := range writeSteps() {
		want = append(want, s.name)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the steps are %q, want %q", got, want)
	}
}
