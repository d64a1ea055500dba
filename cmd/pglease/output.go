package main

import (
	"errors"
	"fmt"
	"io"
)

// An output is a standard output that remembers that a write failed: what was asked for did not
// reach whoever asked, so the call did not do what it should, whether or not the command looked.
type output struct {
	io.Writer
	failed error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil && o.failed == nil {
		o.failed = fmt.Errorf("write the output: %w", err)
	}
	return n, err
}

// join adds what failed to the error of a command, unless the command has told of it.
func (o *output) join(err error) error {
	if o.failed == nil || errors.Is(err, errors.Unwrap(o.failed)) {
		return err
	}
	return errors.Join(err, o.failed)
}
