//go:build unix

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// A child is a worker's process as the director holds it. Its methods are for one goroutine.
type child struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer
	events chan event
	done   chan struct{} // closed when the process is gone; err is set before
	err    error
}

// start runs cmd as a worker. The caller must kill it, which also joins it.
func start(name string, cmd *exec.Cmd) (*child, error) {
	c := &child{name: name, cmd: cmd, events: make(chan event), done: make(chan struct{})}
	c.cmd.Stderr = &c.stderr
	c.cmd.SysProcAttr = ownGroup()
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go c.follow(stdout)
	return c, nil
}

// follow hands on the worker's events until it closes its output, and waits for its end.
func (c *child) follow(stdout io.Reader) {
	lines := json.NewDecoder(stdout)
	for {
		var e event
		if lines.Decode(&e) != nil {
			break
		}
		c.events <- e
	}
	close(c.events)
	c.err = c.cmd.Wait()
	close(c.done)
}

// expect returns the worker's next event, which must be of this kind.
func (c *child) expect(ctx context.Context, kind string) (event, error) {
	select {
	case e, ok := <-c.events:
		switch {
		case !ok:
			<-c.done
			return e, fmt.Errorf("%s ended before %q: %s", c.name, kind, c.lastWords())
		case e.Kind == eventFailed:
			return e, fmt.Errorf("%s: %s", c.name, e.Text)
		case e.Kind != kind:
			return e, fmt.Errorf("%s said %q where %q was due", c.name, e.Kind, kind)
		}
		return e, nil
	case <-ctx.Done():
		return event{}, fmt.Errorf("wait for %s's %q: %w", c.name, kind, context.Cause(ctx))
	}
}

func (c *child) lastWords() string {
	words := strings.TrimSpace(c.stderr.String())
	if words == "" && c.err != nil {
		words = c.err.Error()
	}
	return words
}

// goOn ends the worker's pause. A frozen worker finds the line in its pipe when it is thawed.
func (c *child) goOn() error {
	if _, err := io.WriteString(c.stdin, "\n"); err != nil {
		return fmt.Errorf("tell %s to go on: %w", c.name, err)
	}
	return nil
}

// freeze stops the process, and returns when every thread of it stands still.
func (c *child) freeze(ctx context.Context) error {
	if err := c.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for {
		stopped, err := isStopped(ctx, c.cmd.Process.Pid)
		if err != nil {
			return fmt.Errorf("look whether %s is stopped: %w", c.name, err)
		}
		if stopped {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("freeze %s: %w", c.name, context.Cause(ctx))
		}
	}
}

// thaw lets a frozen process run on.
func (c *child) thaw() error { return c.signal(syscall.SIGCONT) }

func (c *child) signal(s syscall.Signal) error {
	if err := c.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %s to %s: %w", s, c.name, err)
	}
	return nil
}

// finish waits for the end of a worker that has nothing more to do.
func (c *child) finish(ctx context.Context) error {
	if e, ok := <-c.events; ok {
		return fmt.Errorf("%s said %q after its end", c.name, e.Kind)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return fmt.Errorf("wait for %s's end: %w", c.name, context.Cause(ctx))
	}
	if c.err != nil {
		return fmt.Errorf("%s: %w: %s", c.name, c.err, c.lastWords())
	}
	return nil
}

// kill ends the process, frozen or not, and waits until it is gone. One that has ended is left
// alone: os.Process knows that and sends nothing.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	for range c.events { // what it still said does not matter
	}
	<-c.done
}
