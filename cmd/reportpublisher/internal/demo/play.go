package demo

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// Report is the report that the story is about.
const Report = "report/2026-07"

// playTime bounds the story. It is far above what it takes, so that only a hang meets it.
const playTime = time.Minute

// Options say how the story is played.
type Options struct {
	URL      string                 // a server to play on; empty starts one
	Unfenced bool                   // the workers write with a plain UPDATE
	TTL      time.Duration          // of the leases
	Keep     bool                   // the schema on a server that was given
	Command  func(Worker) *exec.Cmd // runs a Worker in a process of its own
}

// Play tells the story as it happens and returns what the database says of it. It leaves nothing
// behind, neither process nor, without Keep, table. The error is about the demo itself; whether the outcome is as
// promised is the Outcome's to say.
func (o Options) Play(ctx context.Context, story *Story) (outcome Outcome, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, playTime, fmt.Errorf("the demo took longer than %v", playTime))
	defer cancel()
	story.tell("demo", "looks for a Postgres to run on")
	s, err := build(ctx, o)
	if err != nil {
		return Outcome{}, err
	}
	defer func() { err = errors.Join(err, s.clear(ctx)) }()
	d := &director{Options: o, stage: s, story: story, computed: map[string]event{}}
	if err := d.perform(ctx); err != nil {
		return Outcome{}, err
	}
	outcome, err = s.outcome(ctx, Report, d.computed)
	outcome.Fenced = !o.Unfenced
	if err == nil {
		err = d.epilogue(ctx, outcome)
	}
	return outcome, err
}
