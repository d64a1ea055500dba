// Package output is the standard output of a command.
package output

import (
	"errors"
	"fmt"
	"io"
)

// A Writer is a standard output that remembers that a write failed: what was asked for did not
// reach whoever asked, so the call did not do what it should, whether or not the command looked.
// New makes one.
type Writer struct {
	to     io.Writer
	failed error
}

// New returns a Writer that writes to another.
func New(to io.Writer) *Writer { return &Writer{to: to} }

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	if err != nil && w.failed == nil {
		w.failed = fmt.Errorf("write the output: %w", err)
	}
	return n, err
}

// Failed tells whether a write failed.
func (w *Writer) Failed() bool { return w.failed != nil }

// Join adds what failed to the error of a command, unless the command has told of it.
func (w *Writer) Join(err error) error {
	if w.failed == nil || errors.Is(err, errors.Unwrap(w.failed)) {
		return err
	}
	return errors.Join(err, w.failed)
}
