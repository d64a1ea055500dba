package postgres

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	basePrefix    = "pglease-pg-"
	stagingPrefix = ".new-"
	ownerFile     = "owner"
)

// youngest is the age below which sweep touches nothing: a process may be between making its
// directory and locking it.
const youngest = time.Minute

// takeOwnership writes who we are into the directory and locks that file until our process ends,
// however it ends. A lock, unlike a process id, is not taken by somebody else later, and means the
// same in every container that shares the directory.
func takeOwnership(base string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(base, ownerFile), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(f, "%d\n", os.Getpid()); err != nil {
		_ = f.Close()
		return nil, err
	}
	if !lock(f) {
		_ = f.Close()
		return nil, fmt.Errorf("%s is locked by another process", f.Name())
	}
	return f, nil
}

// sweep removes what processes left that ended without Stop. It is best effort: what it cannot
// remove, the next one may.
func sweep(roots []string) {
	for _, root := range roots {
		dirs, _ := filepath.Glob(filepath.Join(root, basePrefix+"*"))
		for _, dir := range dirs {
			if abandoned(dir) {
				endServer(filepath.Join(dir, "data"))
				_ = os.RemoveAll(dir)
			}
		}
	}
}

// abandoned tells whether dir is a server's that nobody owns any more: ours by its file's owner,
// old enough, and unlocked. A directory without the file never got as far as having a server.
func abandoned(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || time.Since(info.ModTime()) < youngest {
		return false
	}
	path := filepath.Join(dir, ownerFile)
	file, err := os.Lstat(path)
	if os.IsNotExist(err) {
		return ours(info)
	}
	if err != nil || !file.Mode().IsRegular() || !ours(file) {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return lock(f)
}

func ours(info os.FileInfo) bool {
	uid, ok := owner(info)
	return ok && uid == os.Geteuid()
}

// endServer ends a server that outlived its parent, which happens where the kernel sends no
// parent-death signal. That the process id is still this server's is seen from its arguments.
func endServer(dataDir string) {
	pid, _ := lockFile(dataDir)
	if pid <= 1 || !strings.Contains(commandLine(pid), dataDir) {
		return
	}
	backends := children(pid)
	if signal(pid, immediateShutdown) == nil {
		_ = awaitGone(append(backends, pid), immediateShutdownTime)
	}
}
