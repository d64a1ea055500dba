package worker

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglease/pglease/internal/torture/history"
	"github.com/pglease/pglease/pglease"
)

// A recorder writes the history of a process. It is the client's observer too: that a call took a
// place in line is told by an event alone.
type recorder struct {
	process string
	file    *history.Writer
	next    atomic.Int64

	mu     sync.Mutex
	joined map[string]time.Time // by resource; one call waits for a resource at a time
}

func newRecorder(process, path string) (*recorder, error) {
	file, err := history.Create(path)
	if err != nil {
		return nil, err
	}
	return &recorder{process: process, file: file, joined: map[string]time.Time{}}, nil
}

func (r *recorder) close() error { return r.file.Close() }

// Observe implements pglease.Observer.
func (r *recorder) Observe(e pglease.Event) {
	if e.Kind != pglease.EventWaiting {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.joined[e.Resource] = e.At
}

// call writes the line before a call, makes it, and writes the line after it. The function do fills
// in what the answer tells.
func (r *recorder) call(c history.Call, do func(*history.Call)) history.Call {
	c.Process = r.process
	c.Name = fmt.Sprintf("%s#%d", r.process, r.next.Add(1))
	if c.Key == "" && (c.Call == history.Publish || c.Call == history.Guard) {
		c.Key = c.Name
	}
	c.Invoked = time.Now()
	r.mu.Lock()
	delete(r.joined, c.Resource)
	r.mu.Unlock()
	r.write(history.Line{Phase: history.Invoke, Call: c})
	do(&c)
	c.Returned = time.Now()
	if c.Call == history.Acquire {
		r.mu.Lock()
		c.Joined = r.joined[c.Resource]
		r.mu.Unlock()
	}
	r.write(history.Line{Phase: history.Return, Call: c})
	return c
}

// write ends the process where the history cannot be written: what it does would be unexplained.
func (r *recorder) write(l history.Line) {
	if err := r.file.Write(l); err != nil {
		fmt.Fprintln(os.Stderr, "torture worker: write the history:", err)
		os.Exit(1)
	}
}
