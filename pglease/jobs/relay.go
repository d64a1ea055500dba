package jobs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
)

// A Delivery is a message on its way. A receiver that keeps the greatest fence it has seen, and
// refuses lower ones, is safe from a relay that was paused and goes on after its successor.
type Delivery struct {
	ID        int64 // grows with each message of a key; the same when it is relayed again
	Key       string
	Topic     string
	Body      []byte
	WrittenAt time.Time
	Token     fence.Token // of the relay's lease
}

// A Relay delivers the messages of one outbox under one lease. It is safe for concurrent use, but
// its Run calls take turns.
type Relay struct {
	outbox *Outbox
	token  fence.Token

	mu          sync.Mutex
	established bool
	held        map[string]*heldKey
}

// heldKey is a key whose first message could not be delivered.
type heldKey struct {
	failures int
	until    time.Time
}

const maxHold = time.Minute

// Relay returns a relay that works under a token of the lease of the resource that the outbox is
// named after. The error matches fence.ErrInvalidToken or fence.ErrOtherResource where it is none.
func (o *Outbox) Relay(token fence.Token) (*Relay, error) {
	var err error
	switch {
	case token.IsZero():
		err = fmt.Errorf("%w: it is the zero token", fence.ErrInvalidToken)
	case token.Resource() != o.name:
		err = fmt.Errorf("%w: the token is of %q", fence.ErrOtherResource, token.Resource())
	}
	if err != nil {
		return nil, wrap("relay", o.name, 0, err)
	}
	return &Relay{outbox: o, token: token, held: map[string]*heldKey{}}, nil
}

// Run delivers up to n messages, at most MaxBatch, one after the other, and reports how many were
// delivered and marked. Call it again while it finds some, and now and then when it does not.
//
// It reads what was not relayed, never what is above the last id: a transaction that drew a lower
// id and commits later is found when it has committed. A message is marked after publish returned
// nil, so one whose relay died in between is delivered again.
//
// Where publish fails, the later messages of that key wait for it, and no other key's do: the key
// is held back, for a second at first and up to a minute. The errors are joined in the result.
//
// The error matches fence.ErrStaleOwner where a relay with a newer token has begun: the lease is
// over, nothing was marked any more.
func (r *Relay) Run(ctx context.Context, n int, publish func(context.Context, Delivery) error) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	relayed, err := r.run(ctx, n, publish)
	return relayed, wrap("relay", r.outbox.name, 0, err)
}

func (r *Relay) run(ctx context.Context, n int, publish func(context.Context, Delivery) error) (int, error) {
	if n < 1 || n > MaxBatch {
		return 0, fmt.Errorf("%w: %d in one call, not between 1 and %d", ErrInvalidMessage, n, MaxBatch)
	}
	if !r.established {
		if err := r.outbox.establish(ctx, r.token); err != nil {
			return 0, err
		}
		r.established = true
	}
	c := r.outbox.client
	rows, err := c.queries.Unsent(ctx, c.schema.On(c.pool), jobsdb.UnsentParams{
		Outbox: r.outbox.name, HeldBack: r.heldBack(time.Now()), MaxRows: int32(n),
	})
	if err != nil {
		return 0, err
	}
	ids, err := r.deliver(ctx, rows, publish)
	relayed, failure := r.mark(ctx, ids)
	return relayed, errors.Join(failure, err)
}

// heldBack names the keys whose pause is not over. The others may try again.
func (r *Relay) heldBack(now time.Time) []string {
	names := []string{} // pgx sends nil as NULL, and nothing is equal to any of NULL
	for key, h := range r.held {
		if h.until.After(now) {
			names = append(names, key)
		}
	}
	return names
}

// deliver hands the messages on, in order, and returns the ids of those that arrived.
func (r *Relay) deliver(ctx context.Context, rows []jobsdb.UnsentRow, publish func(context.Context, Delivery) error) (ids []int64, err error) {
	failed := map[string]bool{}
	var problems []error
	for _, row := range rows {
		if failed[row.MessageKey] {
			continue
		}
		if ctx.Err() != nil {
			problems = append(problems, context.Cause(ctx))
			break
		}
		err := publish(ctx, Delivery{
			ID: row.ID, Key: row.MessageKey, Topic: row.Topic, Body: row.Body, WrittenAt: row.WrittenAt, Token: r.token,
		})
		if err != nil {
			failed[row.MessageKey] = true
			r.hold(row.MessageKey)
			problems = append(problems, fmt.Errorf("message %d: %w", row.ID, err))
			continue
		}
		delete(r.held, row.MessageKey)
		ids = append(ids, row.ID)
	}
	return ids, errors.Join(problems...)
}

func (r *Relay) hold(key string) {
	h := r.held[key]
	if h == nil {
		h = &heldKey{}
		r.held[key] = h
	}
	h.failures++
	grown := float64(time.Second) * math.Pow(2, float64(h.failures-1))
	h.until = time.Now().Add(jitter(time.Duration(math.Min(grown, float64(maxHold))), 0.25))
}

// mark stamps what arrived with the token's fence. It does so also when the context has ended:
// what is not marked is delivered again.
func (r *Relay) mark(ctx context.Context, ids []int64) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	c := r.outbox.client
	var relayed int64
	err := c.alone(ctx, func(db jobsdb.DBTX) (err error) {
		relayed, err = c.queries.MarkRelayed(ctx, db, jobsdb.MarkRelayedParams{
			Outbox: r.outbox.name, Fence: r.token.Fence(), LeaseID: leaseID(r.token), Ids: ids,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%w: another relay of %q has come since", fence.ErrStaleOwner, r.outbox.name)
		}
		return err
	})
	return int(relayed), err
}
