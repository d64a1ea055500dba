package postgres

import (
	"os/exec"
	"runtime"
)

// process is a child that is being waited for.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it was waited for
	err   error         // of the wait; read after ended
}

// launch starts cmd and waits for it in a goroutine of its own, which stays on one OS thread until
// the child has ended. Linux sends the parent-death signal when the *thread* that forked ends, so
// a child forked from a thread that Go may end could be killed while its parent is well.
func launch(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}
