//go:build unix

package filestore_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/filestore"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(jobVariable); text != "" {
		os.Exit(runJob(text))
	}
	pgleasetest.Main(m)
}

const july = "report/2026-07"

// parse makes a token of july; lease tells leases apart.
func parse(number, lease int) (fence.Token, error) {
	return fence.Parse(fmt.Sprintf("%d:0197a3c2-6c1e-7d6f-8f5b-%012x:%s", number, lease, july))
}

// token makes the token with a fence and the lease that goes with it.
func token(tb testing.TB, number int) fence.Token {
	tb.Helper()
	token, err := parse(number, number)
	if err != nil {
		tb.Fatal(err)
	}
	return token
}

func open(tb testing.TB, dir, resource string) *filestore.Store {
	tb.Helper()
	store, err := filestore.Open(dir, resource)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := store.Close(); err != nil {
			tb.Error(err)
		}
	})
	return store
}

func write(tb testing.TB, store *filestore.Store, by int, name, text string) {
	tb.Helper()
	if err := store.Write(tb.Context(), token(tb, by), name, []byte(text)); err != nil {
		tb.Fatal(err)
	}
}

// holds fails the test unless the file has the content, or is not there for an empty one.
func holds(tb testing.TB, store *filestore.Store, name, text string) {
	tb.Helper()
	content, err := store.Read(name)
	if text == "" && errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil || string(content) != text {
		tb.Fatalf("%s holds %q, %v; want %q", name, content, err, text)
	}
}

// stands fails the test unless the watermark has the fence.
func stands(tb testing.TB, store *filestore.Store, number int) {
	tb.Helper()
	got, err := store.Watermark()
	want := token(tb, number)
	if err != nil || got.Fence != want.Fence() || got.LeaseID != want.LeaseID() || got.Since.IsZero() {
		tb.Fatalf("watermark is %+v, %v; want fence %d", got, err, number)
	}
}

func put(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}
