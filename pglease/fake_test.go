package pglease_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/internal/authority"
	"github.com/pglease/pglease/pglease/internal/mint"
)

var errSilent = errors.New("the database is silent")

// fakeAuthority grants in memory, for tests of the client's timers in a synctest bubble. It never
// loses a reply that it gave: a lost reply is the business of tests on a real server.
type fakeAuthority struct {
	mu      sync.Mutex
	fence   int64
	rows    map[string]*fakeRow
	calls   []string
	delay   time.Duration // each call takes this long
	silent  bool          // calls block until their context ends
	failing error         // calls fail at once
	clock   time.Duration // the database's clock less ours
	lag     time.Duration // replies to renewals are so long under way
	hung    string        // renewals of this resource block until their context ends
	muffled int           // so many sessions that listen hear nothing; 0: none can be had
}

type fakeRow struct {
	token   fence.Token
	request authority.ID
	owner   string
	ttl     time.Duration
	expires time.Time
	ended   string
}

func newFake() *fakeAuthority { return &fakeAuthority{rows: map[string]*fakeRow{}} }

func (f *fakeAuthority) set(change func(*fakeAuthority)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeAuthority) count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.calls {
		if c == call {
			n++
		}
	}
	return n
}

func (f *fakeAuthority) enter(ctx context.Context, call string) error {
	f.mu.Lock()
	f.calls = append(f.calls, call)
	delay, silent, failing := f.delay, f.silent, f.failing
	f.mu.Unlock()
	if silent {
		<-ctx.Done()
		return errors.Join(errSilent, ctx.Err())
	}
	if failing != nil {
		return failing
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (r *fakeRow) current() bool { return r != nil && r.ended == "" && time.Now().Before(r.expires) }

func (f *fakeAuthority) Acquire(ctx context.Context, r authority.Request) (authority.Answer, error) {
	if err := f.enter(ctx, "acquire"); err != nil {
		return authority.Answer{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	row := f.rows[r.Resource]
	if row.current() {
		if row.request == r.ID {
			return authority.Answer{Outcome: authority.Repeated, Token: row.token, Remaining: time.Until(row.expires)}, nil
		}
		return authority.Answer{Outcome: authority.Held, Owner: row.owner, Remaining: time.Until(row.expires)}, nil
	}
	f.fence++
	token := mint.Token(r.Resource, f.fence, authority.ID{15: byte(f.fence), 14: byte(f.fence >> 8)}).(fence.Token)
	f.rows[r.Resource] = &fakeRow{token: token, request: r.ID, owner: r.Owner, ttl: r.TTL, expires: time.Now().Add(r.TTL)}
	return authority.Answer{Outcome: authority.Granted, Token: token, Owner: r.Owner, Remaining: r.TTL, DatabaseTime: time.Now().Add(f.clock)}, nil
}

func (f *fakeAuthority) Renew(ctx context.Context, leases []fence.Token, _ int64) ([]authority.Renewal, error) {
	if err := f.enter(ctx, "renew"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var renewed []authority.Renewal
	if slices.ContainsFunc(leases, func(t fence.Token) bool { return t.Resource() == f.hung }) {
		f.mu.Unlock()
		defer f.mu.Lock()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for _, t := range leases {
		if row := f.rows[t.Resource()]; row.current() && row.token == t {
			row.expires = time.Now().Add(row.ttl)
			renewed = append(renewed, authority.Renewal{Lease: t.LeaseID(), Remaining: row.ttl, DatabaseTime: time.Now().Add(f.clock)})
		}
	}
	if lag := f.lag; lag > 0 {
		f.mu.Unlock()
		defer f.mu.Lock()
		<-time.After(lag)
	}
	return renewed, nil
}

func (f *fakeAuthority) Ends(ctx context.Context, leases []fence.Token) ([]authority.End, error) {
	if err := f.enter(ctx, "ends"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var ends []authority.End
	for _, t := range leases {
		end := authority.End{Lease: t.LeaseID(), Ended: authority.EndExpired}
		if row := f.rows[t.Resource()]; row != nil && row.token == t {
			end.Current = row.current()
			if row.ended != "" {
				end.Ended, end.By, end.Reason = row.ended, "ada", "stuck"
			}
		}
		ends = append(ends, end)
	}
	return ends, nil
}

func (f *fakeAuthority) Release(ctx context.Context, r authority.ReleaseRequest) (end authority.End, next authority.Handover, err error) {
	if err := f.enter(ctx, "release"); err != nil {
		return end, next, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	end.Lease = r.Lease.LeaseID()
	row := f.rows[r.Lease.Resource()]
	if row == nil || row.token != r.Lease {
		return end, next, nil
	}
	if row.ended == "" {
		row.ended = authority.EndReleased
		if !time.Now().Before(row.expires) {
			row.ended = authority.EndExpired
		}
	}
	end.Ended = row.ended
	return end, next, nil
}

func (f *fakeAuthority) Abandon(ctx context.Context, _ string, _ authority.ID) (authority.Handover, error) {
	return authority.Handover{}, f.enter(ctx, "abandon")
}

func (f *fakeAuthority) Close(context.Context) {}

// The fake has no line: who joins is told to have a place, and never served.

func (f *fakeAuthority) Join(ctx context.Context, r authority.JoinRequest) (authority.Answer, error) {
	if err := f.enter(ctx, "join"); err != nil {
		return authority.Answer{}, err
	}
	return authority.Answer{Outcome: authority.Joined, Ticket: 1, Remaining: r.TTL}, nil
}

func (f *fakeAuthority) Leave(ctx context.Context, _ authority.Place) (authority.Standing, error) {
	return authority.Standing{}, f.enter(ctx, "leave")
}

func (f *fakeAuthority) Prune(ctx context.Context, _ string) (int, error) {
	return 0, f.enter(ctx, "prune")
}

func (f *fakeAuthority) Promote(ctx context.Context, _ string) (authority.Handover, error) {
	return authority.Handover{}, f.enter(ctx, "promote")
}

func (f *fakeAuthority) Watch(ctx context.Context, places []authority.Place) ([]authority.Standing, error) {
	if err := f.enter(ctx, "watch"); err != nil {
		return nil, err
	}
	standings := make([]authority.Standing, len(places))
	for i, p := range places {
		standings[i] = authority.Standing{Request: p.Request, InLine: true, First: true, Remaining: time.Minute}
	}
	return standings, nil
}

func (f *fakeAuthority) Ghosts(ctx context.Context, _ []authority.Handover) (map[fence.LeaseID]bool, error) {
	return nil, f.enter(ctx, "ghosts")
}

func (f *fakeAuthority) Bury(ctx context.Context, _ authority.Handover) (authority.Handover, error) {
	return authority.Handover{}, f.enter(ctx, "bury")
}

func (f *fakeAuthority) Beat(ctx context.Context, _ authority.ID, _ authority.Session, _ time.Duration) error {
	return f.enter(ctx, "beat")
}

func (f *fakeAuthority) Farewell(ctx context.Context, _ authority.ID) error {
	return f.enter(ctx, "farewell")
}

func (f *fakeAuthority) Ring(ctx context.Context, _ authority.ID, _ authority.Ring) error {
	return f.enter(ctx, "ring")
}

func (f *fakeAuthority) Listen(ctx context.Context, _ authority.ID) (authority.Listener, error) {
	if f.muffled == 0 {
		return nil, errors.Join(errSilent, f.enter(ctx, "listen"))
	}
	if err := f.enter(ctx, "listen"); err != nil {
		return nil, err
	}
	heard := make(chan authority.Ring, 1)
	if f.count("listen") > f.muffled {
		heard <- authority.Ring{} // the client's own, which it sends to see whether it hears
	}
	return fakeSession{heard}, nil
}

// fakeSession hears what is in its channel.
type fakeSession struct{ heard chan authority.Ring }

func (s fakeSession) Next(ctx context.Context) (authority.Ring, error) {
	select {
	case ring := <-s.heard:
		return ring, nil
	case <-ctx.Done():
		return authority.Ring{}, ctx.Err()
	}
}

func (fakeSession) Lock(context.Context, int64) error       { return nil }
func (fakeSession) Rousable(context.Context) (int32, error) { return 0, errSilent }
func (fakeSession) Ping(context.Context) error              { return nil }
func (fakeSession) Close(context.Context)                   {}

func (fakeSession) Await(context.Context, authority.Awaited) (authority.Awaiting, error) {
	return authority.Awaiting{}, errSilent
}

func (f *fakeAuthority) Break(ctx context.Context, _ fence.Token, _, _ string) (bool, authority.Handover, error) {
	return false, authority.Handover{}, f.enter(ctx, "break")
}

func (f *fakeAuthority) Describe(ctx context.Context, _ string, _ int) (authority.Description, error) {
	return authority.Description{}, f.enter(ctx, "describe")
}
