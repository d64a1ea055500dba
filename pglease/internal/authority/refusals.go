package authority

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// refusalsKept bounds the memory of refusals; the last half of them is always known.
const refusalsKept = 4096

// refusals remember which resources another held when this client asked last, or was granted when this client
// released them, and until when, by this process's clock. They decide nothing: a resource that is remembered is
// looked at before it is asked for, and what was seen then is the answer; and its line is joined by the
// statement that is cheaper where the resource is held indeed.
type refusals struct {
	mu     sync.Mutex
	recent map[string]time.Time
	older  map[string]time.Time // what recent was when it had become too large
}

// note takes in how an acquire or a join that was sent at some time was answered.
func (r *refusals) note(resource string, sent time.Time, answer Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if answer.Outcome != Held && answer.Outcome != Joined || answer.Remaining <= 0 {
		delete(r.recent, resource)
		delete(r.older, resource)
		return
	}
	if r.recent == nil || len(r.recent) >= refusalsKept/2 {
		r.recent, r.older = make(map[string]time.Time), r.recent
	}
	r.recent[resource] = sent.Add(answer.Remaining)
}

// handed takes in who has the resource after a release that was sent at some time.
func (r *refusals) handed(resource string, sent time.Time, next Handover) {
	var answer Answer
	if !next.Token.IsZero() {
		answer = Answer{Outcome: Held, Remaining: next.Remaining}
	}
	r.note(resource, sent, answer)
}

// likely tells that the resource is held still, as far as is known.
func (r *refusals) likely(resource string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	until, known := r.recent[resource]
	if !known {
		until, known = r.older[resource]
	}
	return known && time.Now().Before(until)
}

// peek answers Held where the resource can be seen to be held, and else ask.
func (p *Postgres) peek(ctx context.Context, c *pgx.Conn, r Request) (Answer, error) {
	row, err := p.queries.Peek(ctx, p.on(c), r.Resource)
	if errors.Is(err, pgx.ErrNoRows) {
		return Answer{Outcome: ask}, nil
	}
	return Answer{
		Outcome: Held, Owner: row.OwnerID, DatabaseTime: row.DatabaseTime,
		Remaining: time.Duration(row.Microseconds) * time.Microsecond,
	}, err
}
