package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// How long a server may take to end before it is told more plainly.
const (
	fastShutdownTime      = 10 * time.Second
	immediateShutdownTime = 5 * time.Second
	killedTime            = 5 * time.Second
)

// startTime bounds the start of a server where the context has no earlier deadline.
const startTime = time.Minute

var (
	errNotOurs = errors.New("the server was given, not started here")
	errStopped = errors.New("the server was stopped, and its data is gone")
)

// Server is a Postgres that was found or started. It is safe for concurrent use.
type Server struct {
	url    string
	source string
	*private
}

// private is a cluster that we started; a Server that was given has none.
type private struct {
	bin     binaries
	who     account
	options Options
	base    string // the directory of everything: data, socket, log
	lock    *os.File
	port    int

	mu      sync.Mutex
	process *process // the postmaster, running or ended
	stopped bool
}

// URL is the connection string, to the database postgres as the superuser on a server that was
// started, and as it was given otherwise. It holds a password.
func (s *Server) URL() string { return s.url }

// Source is one line that says which server was taken, as in "PostgreSQL 15.18 started from
// /usr/lib/postgresql/15/bin".
func (s *Server) Source() string { return s.source }

// Started tells whether the server is a private one, which Stop ends.
func (s *Server) Started() bool { return s.private != nil }

// DataDir is the data directory of a server that was started, and empty on one that was given.
func (s *Server) DataDir() string {
	if s.private == nil {
		return ""
	}
	return s.private.dataDir()
}

// BinDir is the directory of the server's binaries, and empty on a server that was given.
func (s *Server) BinDir() string {
	if s.private == nil {
		return ""
	}
	return s.bin.dir
}

// LogFile is what the server writes its log to, and empty on a server that was given.
func (s *Server) LogFile() string {
	if s.private == nil {
		return ""
	}
	return s.private.logFile()
}

// PID is the process id of the postmaster, and 0 when it does not run or was given.
func (s *Server) PID() int {
	if s.private == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || !s.process.running() {
		return 0
	}
	return s.process.cmd.Process.Pid
}

// Stop ends a server that was started, disconnects its clients and removes its data. It may be
// called again, and does nothing on a server that was given.
func (s *Server) Stop() error {
	if s.private == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	if err := s.end(); err != nil {
		return fmt.Errorf("stop Postgres: %w", err)
	}
	s.stopped = true
	return s.remove()
}

// Kill ends a server that was started as a crash of the machine's processes does: SIGKILL to the
// postmaster and all of its children. It returns when they are gone. The data stays for Restart.
func (s *Server) Kill() error {
	if s.private == nil {
		return errNotOurs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errStopped
	}
	return s.kill()
}

// Restart starts the server again on the same data and the same port. One that runs is shut down
// in an orderly way first; after Kill it recovers from its log. The context bounds the start.
func (s *Server) Restart(ctx context.Context) error {
	if s.private == nil {
		return errNotOurs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errStopped
	}
	if err := s.end(); err != nil {
		return fmt.Errorf("restart Postgres: %w", err)
	}
	if err := s.run(ctx); err != nil {
		return fmt.Errorf("restart Postgres: %w", err)
	}
	return nil
}

func (p *private) dataDir() string { return filepath.Join(p.base, "data") }

func (p *private) logFile() string { return filepath.Join(p.base, "log") }

// end shuts the server down, at first in an orderly way.
func (p *private) end() error {
	pid := p.process.cmd.Process.Pid
	for _, step := range []struct {
		how  signalNumber
		time time.Duration
	}{{fastShutdown, fastShutdownTime}, {immediateShutdown, immediateShutdownTime}} {
		if !p.process.running() {
			return nil
		}
		if err := signal(pid, step.how); err != nil {
			break
		}
		if p.endedWithin(step.time) {
			return nil
		}
	}
	return p.kill()
}

// kill stops the postmaster before it looks for children, so that no new one appears meanwhile.
// They are not in its process group: each leads one of its own.
func (p *private) kill() error {
	if !p.process.running() {
		return nil
	}
	pid := p.process.cmd.Process.Pid
	_ = signal(pid, frozen)
	backends := children(pid)
	if err := signal(pid, killed); err != nil && p.process.running() {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	for _, backend := range backends {
		_ = signal(backend, killed)
	}
	if !p.endedWithin(killedTime) {
		return fmt.Errorf("process %d did not end within %v of its SIGKILL", pid, killedTime)
	}
	return awaitGone(backends, killedTime)
}

func (p *private) endedWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.process.ended:
		return true
	case <-timer.C:
		return false
	}
}

// awaitGone waits for processes that are not ours to wait for. While one is left, the shared
// memory is in use and no new server starts on the data.
func awaitGone(pids []int, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for _, pid := range pids {
		for alive(pid) {
			if time.Now().After(deadline) {
				return fmt.Errorf("process %d is left of a server that was killed", pid)
			}
			<-time.After(time.Millisecond)
		}
	}
	return nil
}

// remove drops the directory. The lock goes last: an unlocked directory is anyone's to sweep.
func (p *private) remove() error {
	err := os.RemoveAll(p.base)
	return errors.Join(err, p.lock.Close())
}
