package sample_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/pglease/pglease/cmd/reportpublisher/sample"
)

// The files that are shipped are what the program makes.
func TestGenerate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "run", "./generate", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := sample.Files.ReadDir(".")
	if err != nil || len(shipped) != len(made) {
		t.Fatalf("%d files are shipped and %d made, %v", len(shipped), len(made), err)
	}
	for _, file := range made {
		got, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		want, err := sample.Files.ReadFile(file.Name())
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: run go generate ./cmd/reportpublisher/sample; %v", file.Name(), err)
		}
	}
}
