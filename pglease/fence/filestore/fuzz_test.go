//go:build unix

package filestore_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/pglease/pglease/pglease/fence/filestore"
)

// FuzzNames writes to whatever name comes. It is refused for the name, or the file is below the directory
// under exactly that name. Nothing beside the directory changes, and the watermark is not touched.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"", "a.csv", "a/b/c", ".", "..", "../beside", "a/../../beside", "/etc/passwd", ".pglease", ".PGLEASE/x", "a\x00b", "a//b", "a/", "\xff", "CON", "a\\..\\b"} {
		f.Add(name)
	}
	above := f.TempDir()
	dir, beside := filepath.Join(above, "store"), filepath.Join(above, "beside")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(beside, []byte("mine"), 0o600)); err != nil { //nolint:gosec // a directory of the test's own
		f.Fatal(err)
	}
	if err := open(f, dir, july).Establish(f.Context(), token(f, 5)); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string) {
		store := open(t, dir, july)
		err := store.Write(t.Context(), token(t, 5), name, []byte("report"))
		found, readErr := store.Read(name)
		switch {
		case err == nil:
			direct, directErr := os.ReadFile(filepath.Join(dir, name))
			if readErr != nil || directErr != nil || !bytes.Equal(found, []byte("report")) || !bytes.Equal(direct, found) {
				t.Errorf("%q: %q, %v; %q, %v", name, found, readErr, direct, directErr)
			}
			if err := store.Remove(t.Context(), token(t, 5), name); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		case readErr == nil:
			t.Errorf("%q: %v, and it was read: %q", name, err, found)
		case errors.Is(err, filestore.ErrName):
		default:
			t.Logf("%q: %v", name, err) // too long a name, for one: for the file system to say
		}
		if text, err := os.ReadFile(beside); err != nil || string(text) != "mine" {
			t.Fatalf("%q: the file beside is %q, %v", name, text, err)
		}
		if entries, err := os.ReadDir(above); err != nil || len(entries) != 2 {
			t.Fatalf("%q: beside are %v, %v", name, entries, err)
		}
		if mark, err := store.Watermark(); err != nil || mark.Fence != 5 {
			t.Fatalf("%q: watermark %+v, %v", name, mark, err)
		}
	})
}
