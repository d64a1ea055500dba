package postgres

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tempRoots returns the directories that a server's own may be made in, the first of which is
// used. Not every TMPDIR will do: the server's user must be able to enter, and the path of its
// socket, of which a system call takes about 100 bytes, must not be too long.
func tempRoots(who account) []string {
	const longest = 103 - len("/"+basePrefix+"4294967295/.s.PGSQL.32767")
	var roots []string
	for _, dir := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		dir = filepath.Clean(dir)
		if len(dir) <= longest && isDir(dir) && enterable(dir, who) && !slices.Contains(roots, dir) {
			roots = append(roots, dir)
		}
	}
	return roots
}

// enterable tells whether the account may reach what lies in dir. Only where we are root and the
// server is not can the answer differ from our own.
func enterable(dir string, who account) bool {
	if !who.dropped {
		return true
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
		dir = filepath.Dir(dir)
	}
}

// cacheDirVariable names the environment variable that says where to keep things between runs.
const cacheDirVariable = "PGLEASE_CACHE_DIR"

// cacheDir returns a directory to keep things between runs: where the variable says, in the user's
// cache, which for root is one that other users may read, or in the temporary directory. Only one
// that belongs to us will do: we run what lies there.
func cacheDir(name string, who account) (string, error) {
	var places []string
	if dir := os.Getenv(cacheDirVariable); dir != "" {
		places = append(places, dir)
	}
	if who.dropped {
		places = append(places, "/var/cache/pglease")
	} else if dir, err := os.UserCacheDir(); err == nil {
		places = append(places, filepath.Join(dir, "pglease"))
	}
	for _, root := range tempRoots(who) {
		places = append(places, filepath.Join(root, "pglease-cache-"+strconv.Itoa(os.Geteuid())))
	}
	var errs []error
	for _, place := range places {
		err := makeOwn(place)
		if err == nil && !enterable(place, who) {
			err = fmt.Errorf("the server's user may not enter %s", place)
		}
		if err == nil {
			dir := filepath.Join(place, name)
			if err = makeOwn(dir); err == nil {
				return dir, nil
			}
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("no directory for a cache: %w", errors.Join(errs...))
}

// stagingDir returns a new directory inside a cache, in which something is made before it takes its
// place by a rename. It also removes what processes left there that were killed a day ago or more.
func stagingDir(cache string) (string, error) {
	left, _ := filepath.Glob(filepath.Join(cache, stagingPrefix+"*"))
	for _, dir := range left {
		if info, err := os.Lstat(dir); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			_ = os.RemoveAll(dir)
		}
	}
	return os.MkdirTemp(cache, stagingPrefix)
}

// makeOwn makes dir, or checks that the one that is there is ours and no link that another user
// put in its place.
func makeOwn(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || !ours(info) || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a directory of ours that only we may write to", dir)
	}
	return nil
}

// copyTree copies a data directory and gives the copy to the account. Where the file system can,
// the copies share their blocks.
func copyTree(from, to string, who account) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(path, from)
		switch {
		case entry.IsDir():
			err = os.Mkdir(target, 0o700)
		case entry.Type().IsRegular():
			err = copyFile(path, target)
		default:
			err = fmt.Errorf("%s is neither a file nor a directory", path)
		}
		if err != nil {
			return err
		}
		return who.give(target)
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
