package postgres

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Companion is a program that runs beside a server that was started, such as a pooler: as the
// server's user, in a directory below the server's own, and ended with us as the server is.
type Companion struct {
	dir     string
	who     account
	process *process
}

// Accompany makes the directory for a program that is to run beside s.
func (s *Server) Accompany(name string) (*Companion, error) {
	if s.private == nil {
		return nil, errNotOurs
	}
	dir, err := os.MkdirTemp(s.base, name+"-")
	if err != nil {
		return nil, err
	}
	return &Companion{dir: dir, who: s.who}, s.who.give(dir)
}

// Dir is the companion's directory. It is removed with the server's.
func (c *Companion) Dir() string { return c.dir }

// WriteFile puts a file into the directory that the server's user alone may read.
func (c *Companion) WriteFile(name, text string) (path string, err error) {
	path = filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", err
	}
	return path, c.who.give(path)
}

// Run starts the program. What it prints goes to the file log in the directory.
func (c *Companion) Run(ctx context.Context, program string, args ...string) error {
	log, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := c.who.command(context.WithoutCancel(ctx), c.dir, program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	c.process, err = launch(cmd)
	return err
}

func (c *Companion) logFile() string { return filepath.Join(c.dir, "log") }

// Log is what the program has printed.
func (c *Companion) Log() string {
	b, _ := os.ReadFile(c.logFile())
	return strings.TrimSpace(string(b))
}

// Ended is closed when the program has ended.
func (c *Companion) Ended() <-chan struct{} { return c.process.ended }

// Kill ends the program, and what it started in its process group, and waits for the program.
func (c *Companion) Kill() error {
	if c.process == nil || !c.process.running() {
		return nil
	}
	pid := c.process.cmd.Process.Pid
	if err := signal(-pid, killed); err != nil && c.process.running() {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	<-c.process.ended
	return nil
}

// FreePort returns a loopback port that nobody listens on. Another may take it before the caller
// does.
func FreePort() (int, error) { return freePort() }
