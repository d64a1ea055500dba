//go:build unix

package servers

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
)

// Installed is the newest version of Postgres that Debian's packages have put on this machine, whole: a
// server with all of its programs. The builds that come by way of npm lack most of them.
type Installed struct {
	Dir   string // of the programs
	Major string
}

// FindInstalled looks for it. Its error says how to get it.
func FindInstalled() (Installed, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pg_upgrade")
	if len(found) == 0 {
		return Installed{}, errors.New("no pg_upgrade found; on Debian: apt-get install postgresql")
	}
	newest := filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return number(a) - number(b) }))
	return Installed{Dir: newest, Major: filepath.Base(filepath.Dir(newest))}, nil
}

func number(program string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(program))))
	return n
}

// Program is the path of one of the programs.
func (i Installed) Program(name string) string { return filepath.Join(i.Dir, name) }
