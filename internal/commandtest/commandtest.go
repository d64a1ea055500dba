// Package commandtest calls a command in its tests and looks at what came of it.
package commandtest

import (
	"bytes"
	"context"
	"io"
	"strings"
	"syscall"
	"testing"
)

// A Command is what main calls: it returns the exit code.
type Command func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int

// A Result is what a call of the command came to.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Call runs the command with an input and its words.
func (c Command) Call(ctx context.Context, stdin io.Reader, args ...string) Result {
	var stdout, stderr bytes.Buffer
	code := c(ctx, args, stdin, &stdout, &stderr)
	return Result{code, stdout.String(), stderr.String()}
}

// Want holds a result to a code and to what it must contain. An empty word means empty output.
func (r Result) Want(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	if r.Code != code || !has(r.Stdout, stdout) || !has(r.Stderr, stderr) {
		t.Errorf("exit code %d, want %d\nstdout: %s\nwant:   %s\nstderr: %s\nwant:   %s",
			r.Code, code, r.Stdout, stdout, r.Stderr, stderr)
	}
}

func has(text, word string) bool {
	if word == "" {
		return text == ""
	}
	return strings.Contains(text, word)
}

// Full is a standard output that takes nothing.
type Full struct{}

// Write implements io.Writer.
func (Full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }
