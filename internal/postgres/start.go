package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// startFrom makes a cluster and runs it.
func startFrom(ctx context.Context, bin binaries, who account, opts Options) (*Server, error) {
	p := &private{bin: bin, who: who, options: opts}
	return p.raise(ctx,
		func() error { return makeCluster(ctx, bin, who, opts.Fresh, p.dataDir()) },
		func() (string, error) { return p.closeDoor(ctx) })
}

// raise makes a directory, has data put into it, and runs a server on that. Whatever was made is
// removed when that fails.
func (p *private) raise(ctx context.Context, makeData func() error, door func() (url string, err error)) (_ *Server, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("start Postgres: %w", err)
		}
	}()
	if err := p.makeBase(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			if p.process != nil {
				_ = p.end()
			}
			_ = p.remove()
		}
	}()
	if err := makeData(); err != nil {
		return nil, err
	}
	if err := p.runOnFreePort(ctx); err != nil {
		return nil, err
	}
	url, err := door()
	if err != nil {
		return nil, err
	}
	return &Server{url: url, source: p.bin.String(), private: p}, nil
}

// makeBase makes the directory of the server and locks it, in this order: sweep leaves young
// directories alone, and locked ones for ever.
func (p *private) makeBase() error {
	roots := tempRoots(p.who)
	if len(roots) == 0 {
		return errors.New("no temporary directory that the server's user may enter, with a path short enough for a socket")
	}
	base, err := os.MkdirTemp(roots[0], basePrefix)
	if err != nil {
		return err
	}
	p.base = base
	if p.lock, err = takeOwnership(base); err != nil {
		return errors.Join(err, os.RemoveAll(base))
	}
	if err := p.who.give(base); err != nil {
		return errors.Join(err, p.remove())
	}
	return nil
}

// tries is how many ports are tried before giving up: each fails only if another took the port
// between our look and the server's bind.
const tries = 10

func (p *private) runOnFreePort(ctx context.Context) error {
	for try := 1; ; try++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		p.port = port
		err = p.run(ctx)
		if !errors.Is(err, errPortTaken) || try == tries {
			return err
		}
	}
}

var errPortTaken = errors.New("the port was taken")

// run starts the postmaster on the cluster and waits until it takes connections.
func (p *private) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	before, err := log.Stat()
	if err != nil {
		return err
	}
	// Not ctx: the server outlives this call.
	cmd := p.who.command(context.WithoutCancel(ctx), p.base, p.bin.path("postgres"), p.arguments()...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(cmd.Env, p.options.Env...)
	if p.process, err = launch(cmd); err != nil {
		return err
	}
	if err := p.awaitReady(ctx); err != nil {
		written := p.logFrom(before.Size())
		if bytes.Contains(written, []byte("could not bind")) {
			err = errPortTaken
		}
		_ = p.end()
		return fmt.Errorf("%w\n%s", err, bytes.TrimSpace(written))
	}
	return nil
}

func (p *private) arguments() []string {
	onOff := map[bool]string{true: "on", false: "off"}[p.options.Durable]
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(p.port),
		"unix_socket_directories": p.base,
		"max_connections":         strconv.Itoa(p.options.MaxConnections),
		"fsync":                   onOff,
		"synchronous_commit":      onOff,
		"full_page_writes":        onOff,
	}
	maps.Copy(settings, p.options.Settings)
	args := []string{"-D", p.dataDir()}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// awaitReady reads the state that the postmaster keeps in its lock file, as pg_ctl does. To
// connect would not do: a server of somebody else may answer at the port.
func (p *private) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		pid, state := lockFile(p.dataDir())
		if (state == "ready" || state == "standby") && pid == p.process.cmd.Process.Pid {
			return nil
		}
		select {
		case <-p.process.ended:
			return fmt.Errorf("the server ended at its start: %w", withText(p.process.err, "exit status 0"))
		case <-ctx.Done():
			return fmt.Errorf("the server is not ready: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

func withText(err error, otherwise string) error {
	if err == nil {
		return errors.New(otherwise)
	}
	return err
}

// lockFile reads postmaster.pid: the process id in line 1 and the state in line 8.
func lockFile(dataDir string) (pid int, state string) {
	b, err := os.ReadFile(filepath.Join(dataDir, "postmaster.pid"))
	if err != nil {
		return 0, ""
	}
	lines := strings.Split(string(b), "\n")
	pid, _ = strconv.Atoi(strings.TrimSpace(lines[0]))
	if len(lines) >= 8 {
		state = strings.TrimSpace(lines[7])
	}
	return pid, state
}

// logFrom is what the server wrote since the log had the given size, the last few kilobytes of it.
func (p *private) logFrom(size int64) []byte {
	b, err := os.ReadFile(p.logFile())
	if err != nil || int64(len(b)) < size {
		return nil
	}
	const limit = 4 << 10
	b = b[size:]
	return b[max(0, len(b)-limit):]
}
