package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// checkName refuses names by their form alone.
func checkName(name string) error {
	if !fs.ValidPath(name) || name == "." || strings.ContainsRune(name, 0) {
		return fmt.Errorf("%w: want a path below the directory, and no step up or in place", ErrName)
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.EqualFold(part, sidecar) {
			return fmt.Errorf("%w: %s is a store's own", ErrName, part)
		}
	}
	return nil
}

// checkWay refuses names by what lies on the way to them. os.Root would follow a symbolic link that
// stays below the directory, and so two names would be one file, or a name the bookkeeping.
func (s *Store) checkWay(name string) error {
	own, err := s.root.Lstat(sidecar)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for end := range steps(name) {
		part := name[:end]
		info, err := s.root.Lstat(part)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err := allowed(info, err, own, end == len(name)); err != nil {
			return fmt.Errorf("%w: %s", err, part)
		}
		if _, err := s.root.Lstat(part + "/" + sidecar); info.IsDir() && err == nil {
			return fmt.Errorf("%w: %s is the directory of another store", ErrName, part)
		}
	}
	return nil
}

// steps yields the ends of the leading parts of a path: those of a, a/b and a/b/c.
func steps(name string) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for i := range len(name) {
			if name[i] == '/' && !yield(i) {
				return
			}
		}
		yield(len(name))
	}
}

func allowed(info fs.FileInfo, err error, own fs.FileInfo, last bool) error {
	switch {
	case err != nil:
		return err
	case own != nil && os.SameFile(info, own): // some file systems have more names for one than two cases
		return fmt.Errorf("%w: the store's own", ErrName)
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%w: a symbolic link", ErrName)
	case last && !info.Mode().IsRegular():
		return fmt.Errorf("%w: not a regular file", ErrName)
	case !last && !info.IsDir():
		return fmt.Errorf("%w: not a directory", ErrName)
	}
	return nil
}
