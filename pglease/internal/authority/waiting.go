package authority

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/leasedb"
	"github.com/pglease/pglease/pglease/internal/mint"
)

// Join implements Line.
func (p *Postgres) Join(ctx context.Context, r JoinRequest) (answer Answer, err error) {
	sent := time.Now()
	err = p.onPool(ctx, func(c *pgx.Conn) (err error) {
		for _, step := range p.steps(r) {
			if answer, err = step(ctx, c, r); err != nil || answer.Outcome != ask {
				break
			}
		}
		return err
	})
	if err == nil {
		p.refused.note(r.Resource, sent, answer)
	}
	return answer.held(err)
}

// steps are what a join tries, until one does not answer ask. Only the last can do whatever is to be done, and it
// costs as much as the two before it, which do one thing each where they can, and else nothing.
func (p *Postgres) steps(r JoinRequest) []func(context.Context, *pgx.Conn, JoinRequest) (Answer, error) {
	type steps = []func(context.Context, *pgx.Conn, JoinRequest) (Answer, error)
	switch {
	case !r.Fresh || r.Barging:
		return steps{p.join}
	case p.refused.likely(r.Resource):
		return steps{p.joinHeld, p.takeFree, p.join}
	}
	return steps{p.takeFree, p.joinHeld, p.join}
}

func (p *Postgres) takeFree(ctx context.Context, c *pgx.Conn, r JoinRequest) (Answer, error) {
	return p.acquireFree(ctx, c, r.Request)
}

func (r JoinRequest) patience() *time.Duration {
	if r.Patience > 0 {
		return &r.Patience
	}
	return nil
}

func (p *Postgres) joinHeld(ctx context.Context, c *pgx.Conn, r JoinRequest) (Answer, error) {
	row, err := p.queries.JoinHeld(ctx, p.on(c), leasedb.JoinHeldParams{
		ResourceID: r.Resource, RequestID: uuid(r.ID), MaxWaiting: int32(r.MaxWaiting), ClientID: uuid(r.Client), OwnerID: r.Owner,
		TTL: r.TTL, LockDelay: r.LockDelay, Barging: r.Barging, Patience: r.patience(), LeaseID: uuid(r.Lease),
	})
	if errors.Is(err, pgx.ErrNoRows) || isUniqueViolation(err) {
		return Answer{Outcome: ask}, nil
	}
	return Answer{Outcome: Joined, Remaining: row.Remaining, Ticket: row.Ticket, Ahead: int(row.Ahead)}, err
}

func isUniqueViolation(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505"
}

func (p *Postgres) join(ctx context.Context, c *pgx.Conn, r JoinRequest) (Answer, error) {
	row, err := p.queries.Join(ctx, p.on(c), leasedb.JoinParams{
		ResourceID: r.Resource, RequestID: uuid(r.ID), MaxWaiting: int32(r.MaxWaiting), OwnerID: r.Owner,
		TTL: r.TTL, LockDelay: r.LockDelay, ClientID: uuid(r.Client), Barging: r.Barging, Patience: r.patience(), LeaseID: uuid(r.Lease),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Answer{Outcome: Held}, nil
	}
	answer := Answer{
		Outcome: Outcome(row.Outcome), Owner: row.OwnerID, Remaining: row.Remaining, DatabaseTime: row.DatabaseTime,
		Ticket: row.Ticket, Ahead: int(row.Ahead),
	}
	if answer.Outcome == Granted || answer.Outcome == Repeated {
		answer.Token = token(r.Resource, row.Fence, row.LeaseID)
		answer.Unconfirmed = row.WaitsForStandby && (answer.Outcome == Repeated || !watched(c.PgConn()))
	}
	return answer, err
}

// Leave implements Line.
func (p *Postgres) Leave(ctx context.Context, place Place) (s Standing, err error) {
	err = p.onPool(ctx, func(c *pgx.Conn) error {
		row, err := p.queries.Leave(ctx, p.on(c), leasedb.LeaveParams{
			ResourceID: place.Resource, RequestID: uuid(place.Request), Ticket: place.Ticket,
		})
		s = Standing{Request: place.Request}
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err == nil && row.Outcome == "granted" {
			s.Granted, s.Token, s.Remaining = true, token(place.Resource, row.Fence, row.LeaseID), row.Remaining
		}
		return err
	})
	return s, err
}

// Prune implements Line.
func (p *Postgres) Prune(ctx context.Context, resource string) (dropped int, err error) {
	err = p.onPool(ctx, func(c *pgx.Conn) error {
		n, err := p.queries.PruneLine(ctx, p.on(c), resource)
		dropped = int(n)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return dropped, err
}

// Promote implements Line.
func (p *Postgres) Promote(ctx context.Context, resource string) (next Handover, err error) {
	err = p.onPool(ctx, func(c *pgx.Conn) error {
		row, err := p.queries.Promote(ctx, p.on(c), resource)
		if errors.Is(err, pgx.ErrNoRows) {
			next = Handover{}
			return nil
		}
		next = handover(resource, row.Outcome, row.ClientID, row.RequestID, row.Ticket, row.NextLeaseID, row.NextFence, row.NextRemaining)
		next.Unconfirmed, next.Sleeps = row.WaitsForStandby, row.SessionPid > 0
		return err
	})
	return next, err
}

// handover reads what Release and Promote answer of the next owner.
func handover(resource, outcome string, client, request pgtype.UUID, ticket int64, lease pgtype.UUID, number int64, remaining time.Duration) Handover {
	switch outcome {
	case "handed_over":
		return Handover{Client: client.Bytes, Request: request.Bytes, Ticket: ticket, Token: token(resource, number, lease), Remaining: remaining}
	case "rung":
		return Handover{Client: client.Bytes, Request: request.Bytes, Ticket: ticket}
	}
	return Handover{}
}

// Watch implements Line.
func (p *Postgres) Watch(ctx context.Context, places []Place) (standings []Standing, err error) {
	resources := make(map[ID]string, len(places))
	for _, place := range places {
		resources[place.Request] = place.Resource
	}
	var rows []leasedb.WatchRow
	err = p.onPool(ctx, func(c *pgx.Conn) (err error) {
		rows, err = p.watch(ctx, c, places)
		return err
	})
	for _, row := range rows {
		s := Standing{
			Request: row.RequestID.Bytes, Granted: row.Granted, InLine: row.InLine, First: row.First,
			Remaining: max(row.Remaining, p.grace.left()),
		}
		if s.Granted {
			s.Token, s.Remaining, s.Unconfirmed = token(resources[s.Request], row.Fence, row.LeaseID), row.Remaining, row.WaitsForStandby
		}
		standings = append(standings, s)
	}
	return standings, err
}

func (p *Postgres) watch(ctx context.Context, c *pgx.Conn, places []Place) ([]leasedb.WatchRow, error) {
	if len(places) == 1 {
		one := places[0]
		row, err := p.queries.WatchOne(ctx, p.on(c), leasedb.WatchOneParams{
			ResourceID: one.Resource, Ticket: one.Ticket, RequestID: uuid(one.Request),
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, nil
		}
		return []leasedb.WatchRow{leasedb.WatchRow(row)}, err
	}
	params := leasedb.WatchParams{
		Resources: make([]string, len(places)), Tickets: make([]int64, len(places)), Requests: make([]pgtype.UUID, len(places)),
	}
	for i, place := range places {
		params.Resources[i], params.Tickets[i], params.Requests[i] = place.Resource, place.Ticket, uuid(place.Request)
	}
	return p.queries.Watch(ctx, p.on(c), params)
}

// Ghosts implements Line.
func (p *Postgres) Ghosts(ctx context.Context, handed []Handover) (gone map[fence.LeaseID]bool, err error) {
	err = p.onPool(ctx, func(c *pgx.Conn) (err error) {
		gone, err = p.ghosts(ctx, c, handed)
		return err
	})
	return gone, err
}

func (p *Postgres) ghosts(ctx context.Context, c *pgx.Conn, handed []Handover) (map[fence.LeaseID]bool, error) {
	if len(handed) == 1 {
		one := handed[0]
		gone, err := p.queries.GhostOne(ctx, p.on(c), leasedb.GhostOneParams{
			ResourceID: one.Token.Resource(), LeaseID: uuid(one.Token.LeaseID()), ClientID: uuid(one.Client),
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, nil
		}
		return map[fence.LeaseID]bool{one.Token.LeaseID(): gone}, err
	}
	tokens, clients := make([]fence.Token, len(handed)), make([]pgtype.UUID, len(handed))
	for i, h := range handed {
		tokens[i], clients[i] = h.Token, uuid(h.Client)
	}
	resources, leases, _ := columns(tokens)
	rows, err := p.queries.Ghosts(ctx, p.on(c), leasedb.GhostsParams{Resources: resources, Leases: leases, Clients: clients})
	gone := make(map[fence.LeaseID]bool, len(rows))
	for _, row := range rows {
		gone[row.LeaseID.Bytes] = row.Gone
	}
	return gone, err
}

// Bury implements Line.
func (p *Postgres) Bury(ctx context.Context, handed Handover) (Handover, error) {
	buried := false
	err := p.onPool(ctx, func(c *pgx.Conn) error {
		_, err := p.queries.Bury(ctx, p.on(c), leasedb.BuryParams{
			ResourceID: handed.Token.Resource(), LeaseID: uuid(handed.Token.LeaseID()), ClientID: uuid(handed.Client),
		})
		buried = err == nil
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil || !buried {
		return Handover{}, err
	}
	return p.Promote(ctx, handed.Token.Resource())
}

// Beat implements Line.
func (p *Postgres) Beat(ctx context.Context, client ID, session Session, life time.Duration) error {
	params := leasedb.BeatParams{ClientID: uuid(client), Life: life}
	if session.Key != 0 {
		params.SessionKey = &session.Key
	}
	if session.Process != 0 {
		params.SessionPid = &session.Process
	}
	return p.onPool(ctx, func(c *pgx.Conn) error { return p.queries.Beat(ctx, p.on(c), params) })
}

// Farewell implements Line.
func (p *Postgres) Farewell(ctx context.Context, client ID) error {
	return p.onPool(ctx, func(c *pgx.Conn) error { return p.queries.Farewell(ctx, p.on(c), uuid(client)) })
}

// Break implements Line.
func (p *Postgres) Break(ctx context.Context, lease fence.Token, by, reason string) (broken bool, next Handover, err error) {
	err = p.onPool(ctx, func(c *pgx.Conn) error {
		_, err := p.queries.BreakLease(ctx, p.on(c), leasedb.BreakLeaseParams{
			ResourceID: lease.Resource(), LeaseID: uuid(lease.LeaseID()), EndedBy: by, Reason: reason,
		})
		broken = err == nil
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil || !broken {
		return false, Handover{}, err
	}
	next, err = p.Promote(ctx, lease.Resource())
	return true, next, err
}

// Describe implements Line.
func (p *Postgres) Describe(ctx context.Context, resource string, limit int) (d Description, err error) {
	err = p.onPool(ctx, func(c *pgx.Conn) error {
		d, err = p.describe(ctx, c, resource, limit)
		return err
	})
	return d, err
}

func (p *Postgres) describe(ctx context.Context, c conn, resource string, limit int) (Description, error) {
	row, err := p.queries.CurrentLease(ctx, p.on(c), resource)
	if errors.Is(err, pgx.ErrNoRows) {
		return Description{}, nil
	}
	if err != nil {
		return Description{}, err
	}
	d := Description{
		Found: true, Owner: row.OwnerID, Token: token(resource, row.Fence, row.LeaseID), Since: row.AcquiredAt,
		Current: row.Current, Remaining: row.Remaining,
	}
	line, err := p.queries.Line(ctx, p.on(c), leasedb.LineParams{ResourceID: resource, MaxRows: int32(limit)})
	if err != nil {
		return Description{}, err
	}
	for _, w := range line {
		d.Line = append(d.Line, Waiter{Owner: w.OwnerID, Request: w.RequestID.Bytes, Waited: w.Waited, Barging: w.Barging, Alive: w.Alive})
	}
	d.MeanHold, err = p.queries.MeanHold(ctx, p.on(c), resource)
	return d, err
}

func token(resource string, number int64, lease pgtype.UUID) fence.Token {
	return mint.Token(resource, number, lease.Bytes).(fence.Token)
}
