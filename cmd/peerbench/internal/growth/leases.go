package growth

import (
	"context"

	"github.com/pglease/pglease/cmd/peerbench/internal/contest"
	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
)

// leases has one client renew more and more of them.
func (s *stage) leases(ctx context.Context, c *Curve) error {
	c.Title, c.X = "Renewals against the number of leases of one client", "leases"
	c.Unit, c.Limit = "renewed leases", "one UPDATE a lease, by one connection"
	limit, end, err := contest.Limit(ctx, s.server.Address, 1, 1)
	if err != nil {
		return err
	}
	defer end()
	for _, n := range halfSteps(tenfold(10, s.Leases)) {
		r, err := peers.RenewLeases(ctx, peers.Options{Address: s.server.Address, N: n, Count: &measure.Counter{}}, peers.HistorySchema)
		if err != nil {
			return err
		}
		err = s.measure(ctx, c, n, r.Load, limit)
		r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
