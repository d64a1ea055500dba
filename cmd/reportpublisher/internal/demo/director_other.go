//go:build !unix

package demo

import (
	"context"
	"errors"
)

// A director would freeze a process; this system has no signal for that.
type director struct {
	Options
	*stage
	story    *Story
	computed map[string]event
}

func (d *director) perform(context.Context) error {
	return errors.New("the demo stops a process with SIGSTOP, which this system does not have")
}
