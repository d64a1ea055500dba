//go:build linux

package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/pglease/pglease/internal/torture/proxy"
	"github.com/pglease/pglease/internal/torture/worker"
)

// A child is a worker's process and its two ways: to the authority and to the resource.
type child struct {
	name      string
	authority *proxy.Link
	resource  *proxy.Link
	cmd       *exec.Cmd
	stderr    bytes.Buffer
	done      chan struct{} // closed when the process is gone; err is set before
	err       error

	mu     sync.Mutex
	in     io.WriteCloser
	killed bool // by us
	frozen bool
}

// startChild runs cmd as a worker process. The caller must stop it, or kill it and stop it.
func startChild(cmd *exec.Cmd, order worker.Order, authority, resource *proxy.Link) (*child, error) {
	c := &child{name: order.Name, authority: authority, resource: resource, cmd: cmd, done: make(chan struct{})}
	cmd.Stderr = &c.stderr
	// When we die its input ends, and a group of which a process is stopped is woken and hung up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		c.err = cmd.Wait()
		close(c.done)
	}()
	if err := c.tell(order); err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

// tell writes a line to its input.
func (c *child) tell(line any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.killed {
		return nil
	}
	return json.NewEncoder(c.in).Encode(line)
}

func (c *child) running() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// freeze stops the process; false says that it was stopped or gone already.
func (c *child) freeze() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.killed || c.frozen || c.cmd.Process.Signal(syscall.SIGSTOP) != nil {
		return false
	}
	c.frozen = true
	return true
}

// thaw lets it run on.
func (c *child) thaw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen {
		c.frozen = false
		_ = c.cmd.Process.Signal(syscall.SIGCONT)
	}
}

// kill ends the process at once, frozen or not, and its links after it: what it sent still arrives.
func (c *child) kill() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.killed || c.cmd.Process.Kill() != nil {
		return false
	}
	c.killed = true
	<-c.done
	return true
}

// leaveTime is how long a process that was told to end may take.
const leaveTime = time.Minute

// stop ends the process as it should end, and closes the links. An error tells that it did not end
// well by itself.
func (c *child) stop(ctx context.Context) error {
	defer func() {
		_ = c.authority.Close()
		_ = c.resource.Close()
	}()
	c.thaw()
	if err := c.tell(worker.Command{Stop: true}); err != nil && c.running() {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	select {
	case <-c.done:
	case <-ctx.Done():
		c.kill()
		return fmt.Errorf("worker %s did not end: %s", c.name, c.stderr.String())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil && !c.killed {
		return errors.Join(fmt.Errorf("worker %s: %w", c.name, c.err), errors.New(c.stderr.String()))
	}
	return nil
}
