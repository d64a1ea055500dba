//go:build unix

package sequences_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// A process is a worker process, seen from the test.
type process struct {
	cmd *exec.Cmd
	in  *json.Encoder
	out *json.Decoder
}

func (s *stage) start(t *testing.T, r role) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says that it was killed
	})
	p := &process{cmd: cmd, in: json.NewEncoder(stdin), out: json.NewDecoder(stdout)}
	r.Leases, r.Reports = s.leasesURL, s.reportsURL
	if err := p.in.Encode(r); err != nil {
		t.Fatal(err)
	}
	return p
}

// tell puts a command into the process's pipe.
func (p *process) tell(t *testing.T, c command) {
	t.Helper()
	if err := p.in.Encode(c); err != nil {
		t.Fatal(err)
	}
}

// hear waits for the answer to a command.
func (p *process) hear(t *testing.T) (said answer) {
	t.Helper()
	if err := p.out.Decode(&said); err != nil {
		t.Fatal(err)
	}
	return said
}

// does has the process take one step, and checks how it ends.
func (p *process) does(t *testing.T, c command, outcome string) answer {
	t.Helper()
	p.tell(t, c)
	said := p.hear(t)
	if said.Outcome != outcome {
		t.Fatalf("%s: %+v, want %q", c.Do, said, outcome)
	}
	return said
}

// freeze stops the process and returns when all of its threads have stopped: then the kernel tells its
// parent.
func (p *process) freeze(t *testing.T) {
	t.Helper()
	pid := p.cmd.Process.Pid
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || !status.Stopped() {
			t.Fatalf("status %v, %v", status, err)
		}
		return
	}
}

func (p *process) thaw(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(p.cmd.Process.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// kill ends the process, frozen or not, and returns when it is gone.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait() // says that it was killed
}
