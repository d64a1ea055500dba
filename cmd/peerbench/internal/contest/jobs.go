package contest

import (
	"context"
	"slices"

	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
	"github.com/pglease/pglease/cmd/peerbench/internal/queues"
	"github.com/pglease/pglease/cmd/peerbench/internal/servers"
)

// jobs has workers that claim and complete jobs that do nothing.
func (s *stage) jobs(ctx context.Context, p *prepared, n int) error {
	if err := s.limit(ctx, p, "two UPDATEs of a row of one's own", n, 2); err != nil {
		return err
	}
	for _, q := range queues.All() {
		if !slices.ContainsFunc(s.peers, func(peer peers.Peer) bool { return peer.Name == q.Peer }) {
			continue
		}
		load, end, err := q.Open(ctx, s.addresses[servers.Postgres])
		if err != nil {
			return err
		}
		load.Name = q.Title
		p.add(q.Title, load, end)
	}
	return nil
}
