//go:build unix

package filestore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/fencetest"
	"github.com/pglease/pglease/pglease/fence/filestore"
)

// jobVariable tells the test binary that it is to do a job instead of running tests.
const jobVariable = "PGLEASE_FILESTORE_JOB"

// A job is what another process does to a directory.
type job struct {
	Dir, Resource string
	Log           string        // where changes are recorded; may be empty
	Owners        []fence.Token // a write each
	Name          string        // the file; empty: one of four
	Text          string        // what is written; empty: a text of its own each time
	Remove        bool          // the file is removed instead
	DieAt         string        // the step at which the process kills itself
}

func runJob(text string) int {
	if err := work(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func work(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	store, err := filestore.Open(j.Dir, j.Resource)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i, owner := range j.Owners {
		if err := j.change(ctx, store, owner, i); err != nil && !fence.IsStale(err) {
			return err
		}
	}
	return store.Close()
}

func (j job) change(ctx context.Context, store *filestore.Store, owner fence.Token, i int) error {
	name, text := j.Name, j.Text
	if name == "" {
		name = fmt.Sprintf("file-%d", rand.IntN(4))
	}
	if text == "" {
		text = fmt.Sprintf("%d-%d", os.Getpid(), i)
	}
	store.OnStep(func(step string) {
		if step == "content renamed" && j.Log != "" {
			if err := record(store, name, j.Log); err != nil {
				panic(err)
			}
		}
		if step == j.DieAt {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	if j.Remove {
		return store.Remove(ctx, owner, name)
	}
	return store.Write(ctx, owner, name, []byte(text))
}

// record writes down what has just taken effect, as the directory itself shows it. It is called
// where the effect takes place, while the lock is held.
func record(store *filestore.Store, name, log string) error {
	content, err := store.Read(name)
	if err != nil {
		return err
	}
	mark, err := store.Watermark()
	if err != nil {
		return err
	}
	line, err := json.Marshal(fencetest.Entry{Command: string(content), Fence: mark.Fence, LeaseID: mark.LeaseID})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

func recorded(log string) (entries []fencetest.Entry, err error) {
	text, err := os.ReadFile(log)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for line := range bytes.Lines(text) {
		var e fencetest.Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, err
}

// start has another process do a job.
func start(ctx context.Context, j job) (*exec.Cmd, *bytes.Buffer, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Start()
	return cmd, &out, err
}

// killed has another process do a job that it does not survive.
func killed(ctx context.Context, j job) error {
	cmd, out, err := start(ctx, j)
	if err != nil {
		return err
	}
	err = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("the process did not die at %q: %w: %s", j.DieAt, err, out)
	}
	return nil
}

// Processes that know nothing of each other, and are not told who is stale: the kernel's lock alone
// keeps the order.
func TestProcessesShareADirectory(t *testing.T) {
	t.Parallel()
	const processes, writes = 4, 40
	dir, log := t.TempDir(), t.TempDir()+"/log"
	waits := make([]func() error, processes)
	for i := range waits {
		j := job{Dir: dir, Resource: july, Log: log}
		for n := range writes {
			j.Owners = append(j.Owners, token(t, 1+max(n+rand.IntN(7)-3, 0)))
		}
		cmd, out, err := start(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		waits[i] = func() error {
			if err := cmd.Wait(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}
	}
	for _, wait := range waits {
		if err := wait(); err != nil {
			t.Error(err)
		}
	}
	entries, err := recorded(log)
	if err := errors.Join(err, fencetest.CheckHistory(entries)); err != nil {
		t.Error(err)
	}
	if len(entries) < 3 {
		t.Errorf("%d writes were accepted: too few to show anything", len(entries))
	}
}
