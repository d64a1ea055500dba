package profile

import (
	"context"
	"errors"

	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
	"github.com/pglease/pglease/pglease/jobs"
)

const queue = "profile"

var errNoJob = errors.New("there are jobs, and none was claimed")

// jobs claims and completes, one at a time.
func (s *stage) jobs(ctx context.Context) ([]load, error) {
	t, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	client, err := jobs.New(t.Pool, jobs.Config{Schema: peers.HistorySchema, TTL: leaseTTL}) // a claim is held from one turn to the next
	if err != nil {
		return nil, err
	}
	claims := make([]*jobs.Claim, many)
	one := func(list []*jobs.Claim, err error) (*jobs.Claim, error) {
		if err == nil && len(list) != 1 {
			err = errNoJob
		}
		if err != nil {
			return nil, err
		}
		return list[0], nil
	}
	claim := func(i int) (err error) { claims[i], err = one(client.Claim(ctx, queue, 1)); return err }
	complete := func(i int) error { return client.Complete(ctx, claims[i]) }
	var held *jobs.Claim
	l := s.each(ctx, t, "jobs", []step{
		{"claim", "Claim", claim},
		{"complete", "Complete", complete},
		{"complete-claim", "CompleteAndClaim", func(int) (err error) {
			held, err = one(client.CompleteAndClaim(ctx, held, 1))
			return err
		}},
	})
	left, measured := 0, l.cycle
	l.cycle = func(ctx context.Context) (err error) {
		for ; left < 4*many; left += jobs.MaxBatch {
			if _, err := client.Enqueue(ctx, stock()...); err != nil {
				return err
			}
		}
		left -= 2*many + 1
		if held == nil {
			if held, err = one(client.Claim(ctx, queue, 1)); err != nil {
				return err
			}
		}
		return measured(ctx)
	}
	return []load{l}, nil
}

func stock() []jobs.Job {
	list := make([]jobs.Job, jobs.MaxBatch)
	for i := range list {
		list[i] = jobs.Job{Queue: queue, Payload: []byte(`{}`)}
	}
	return list
}
