package repocheck_test

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the top of the repository, seen from this package.
const root = "../.."

// A file of the repository, with its path from the top in slashes.
type file struct {
	path string
	text string
}

// lines are numbered from 1 for who reads them; lines()[0] is line 1.
func (f file) lines() []string { return strings.Split(strings.TrimSuffix(f.text, "\n"), "\n") }

// files reads every text file for which want answers true. It leaves out what Git keeps and what
// it ignores: build output and folders that package managers fill.
func files(t *testing.T, want func(path string) bool) []file {
	t.Helper()
	var found []file
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{".git", "bin", "node_modules"}, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if !entry.Type().IsRegular() || ignored(rel) || !want(rel) {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) < 0 {
			found = append(found, file{rel, string(text)})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatal("no file was found: the check would check nothing")
	}
	return found
}

// ignored mirrors .gitignore, which keeps these out of a commit.
func ignored(rel string) bool {
	return slices.Contains([]string{".test", ".prof", ".out"}, path.Ext(rel))
}

func withExt(exts ...string) func(string) bool {
	return func(rel string) bool { return slices.Contains(exts, path.Ext(rel)) }
}

func isTest(rel string) bool { return strings.HasSuffix(rel, "_test.go") }
