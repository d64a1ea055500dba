package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// binDirVariable names the environment variable that settles which binaries are used.
const binDirVariable = "PGLEASE_PG_BINDIR"

// oldestMajor is the oldest major version that the migrations work on.
const oldestMajor = 13

// places are where packages put server binaries that are not on PATH.
var places = []string{
	"/usr/lib/postgresql/*/bin",   // Debian, Ubuntu
	"/usr/pgsql-*/bin",            // the Postgres project's RPMs
	"/usr/lib/postgresql*/bin",    // SUSE
	"/usr/lib64/postgresql-*/bin", // Gentoo
	"/usr/libexec/postgresql*",    // Alpine
	"/usr/local/pgsql/bin",        // built from source
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
	"/opt/local/lib/postgresql*/bin", // MacPorts
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// binaries is a directory with initdb and postgres that the server's account can run.
type binaries struct {
	dir     string
	major   int
	version string // as in 15.18, or 19beta1
	origin  string // how they came here, when not from this machine
}

func (b binaries) String() string {
	if b.origin != "" {
		return fmt.Sprintf("PostgreSQL %s started from %s (%s)", b.version, b.dir, b.origin)
	}
	return fmt.Sprintf("PostgreSQL %s started from %s", b.version, b.dir)
}

// onThisMachine looks where binDirVariable says, and there alone when it is set; else on PATH,
// and then in the usual places, newest first.
func onThisMachine(ctx context.Context, who account, version string) (binaries, error) {
	if dir := os.Getenv(binDirVariable); dir != "" {
		b, err := probe(ctx, who, dir)
		if err == nil && !b.is(version) {
			err = fmt.Errorf("it is version %s, and %s is asked for", b.version, version)
		}
		if err != nil {
			return binaries{}, fmt.Errorf("%s=%s: %w", binDirVariable, dir, err)
		}
		return b, nil
	}
	var errs []error
	for _, dir := range onPath(ctx) {
		b, err := probe(ctx, who, dir)
		if err == nil && b.is(version) {
			return b, nil
		}
		errs = append(errs, err)
	}
	for _, b := range inUsualPlaces(ctx, who) {
		if b.is(version) {
			return b, nil
		}
	}
	if err := errors.Join(errs...); err != nil {
		return binaries{}, fmt.Errorf("no usable server binaries: %w", err)
	}
	return binaries{}, fmt.Errorf("no server binaries%s on this machine", prefixed(" of version ", version))
}

func onPath(ctx context.Context) []string {
	var dirs []string
	if initdb, err := exec.LookPath("initdb"); err == nil {
		// Often a link to one file alone; its neighbours are where it points to.
		if target, err := filepath.EvalSymlinks(initdb); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dir := strings.TrimSpace(string(out))
		// With the client's package alone there is a pg_config and no server: not worth an error.
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func inUsualPlaces(ctx context.Context, who account) []binaries {
	var found []binaries
	for _, pattern := range places {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			if b, err := probe(ctx, who, dir); err == nil {
				found = append(found, b)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b binaries) int { return b.major - a.major })
	return found
}

var versionText = regexp.MustCompile(`\(PostgreSQL\) ((\d+)[^ \n]*)`)

// probe runs `postgres --version` as the server's account, which shows the version, and that the
// account may reach and run the file and that its libraries are here.
func probe(ctx context.Context, who account, dir string) (binaries, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return binaries{}, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return binaries{}, err
	}
	out, err := who.output(ctx, "/", filepath.Join(dir, "postgres"), "--version")
	if err != nil {
		return binaries{}, err
	}
	m := versionText.FindSubmatch(bytes.TrimSpace(out))
	if m == nil {
		return binaries{}, fmt.Errorf("%s: no version in %q", dir, out)
	}
	major, err := strconv.Atoi(string(m[2]))
	if err != nil || major < oldestMajor {
		return binaries{}, fmt.Errorf("%s is version %s, older than %d", dir, m[1], oldestMajor)
	}
	return binaries{dir: dir, major: major, version: string(m[1])}, nil
}

// is tells whether b is of the major version; the empty one is any.
func (b binaries) is(version string) bool {
	return version == "" || version == strconv.Itoa(b.major)
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }
