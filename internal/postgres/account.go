package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// account is the user that the server runs as: ourselves, or where we are root, for which
// Postgres refuses to run, an unprivileged user.
type account struct {
	uid, gid int
	dropped  bool // we are root and the server is not
}

// serverAccount takes a user that exists: initdb looks itself up and fails without an entry.
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err == nil && err2 == nil && uid != 0 {
			return account{uid: uid, gid: gid, dropped: true}, nil
		}
	}
	return account{}, errors.New("no account: Postgres does not run as root, and there is neither a user postgres nor a user nobody to run it as")
}

// give makes the account the owner of a file that we made.
func (a account) give(path string) error {
	if !a.dropped {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}

// command is a program of the server, run as the account in dir, with an environment that says
// nothing about the caller's: a PGPORT or LC_ALL of the caller must not reach the server.
func (a account) command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC", "HOME=" + dir}
	// initdb has children that hold its output open: all of its process group goes.
	cmd.Cancel = func() error { return signal(-cmd.Process.Pid, killed) }
	cmd.WaitDelay = 5 * time.Second
	setAttributes(cmd, a)
	return cmd
}

// output runs a program to its end. Its error carries what the program wrote.
func (a account) output(ctx context.Context, dir, program string, args ...string) ([]byte, error) {
	cmd := a.command(ctx, dir, program, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := launch(cmd)
	if err == nil {
		<-p.ended
		err = p.err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w%s", filepath.Base(program), err, prefixed(": ", strings.TrimSpace(out.String())))
	}
	return out.Bytes(), nil
}
