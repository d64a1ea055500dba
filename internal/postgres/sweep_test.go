package postgres_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pglease/pglease/internal/postgres"
)

func TestSweepTakesWhatIsAbandoned(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := func(name string) string {
		path := filepath.Join(root, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	owned := func(path string) *os.File {
		f, err := postgres.TakeOwnership(path)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}

	left := dir(postgres.BasePrefix + "left")
	owned(left).Close()
	unborn := dir(postgres.BasePrefix + "unborn")
	held := dir(postgres.BasePrefix + "held")
	lock := owned(held)
	defer lock.Close()
	young := dir(postgres.BasePrefix + "young")
	owned(young).Close()
	other := dir("other")
	target := dir("target")
	owned(target).Close()
	link := filepath.Join(root, postgres.BasePrefix+"link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{left, unborn, held, other, target} {
		age(t, path)
	}

	postgres.Sweep([]string{root})
	for path, want := range map[string]bool{left: false, unborn: false, held: true, young: true, other: true, target: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: there %v, want %v", filepath.Base(path), err == nil, want)
		}
	}
}

func TestPortsAreBelowTheEphemeralRange(t *testing.T) {
	t.Parallel()
	for range 100 {
		port, err := postgres.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if port < 10240 || port > 32767 {
			t.Fatalf("port %d", port)
		}
	}
}
