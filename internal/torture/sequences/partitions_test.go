package sequences_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
	"github.com/pglease/pglease/reportstore"
)

// TestSequence07_ClientCutOffFromTheAuthority: W1 reaches the report and not the database of its lease.
// No connection breaks and nothing returns an error: the network is silent.
//
//	   W1's keeper             authority      W1's work, careless         W2              report
//	1  acquires f1             f1             publishes again and again                   versions under f1
//	2  (cut off)               f1             publishes                                   versions under f1
//	3  Suspect, then Lost,     f1: not yet    publishes                                   versions under f1
//	   by its own clock        expired
//	4                          expires
//	5                          f2                                         establishes     watermark f2
//	6                                         is refused and stops                        nothing more under f1
//	7                                                                     publishes       last version, f2
func TestSequence07_ClientCutOffFromTheAuthority(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	pool, faults := s.tampered(t)
	w1 := newClient(t, pool, pglease.Config{Owner: "W1", TTL: 2 * time.Second, RenewEvery: 100 * time.Millisecond})
	first := s.take(t, w1)
	states, stop := first.States()
	defer stop()
	each, ended := make(chan int, 1), make(chan *toiler)
	go func() { ended <- s.toil(t.Context(), first.Token(), each) }()
	<-each

	faults.Freeze()
	s.trustedInside(t, first)
	var seen []string
	for state := range states {
		seen = append(seen, state.String())
	}
	if walk := strings.Join(seen, " "); !strings.HasSuffix(walk, "suspect lost") || !errors.Is(first.Err(), pglease.ErrLost) {
		t.Errorf("the lease went through %s: %v", walk, first.Err())
	}
	before := <-each
	if after := <-each; after < before {
		t.Errorf("the work has stopped after %d versions", before)
	}

	second := s.take(t, newClient(t, s.leases, pglease.Config{Owner: "W2"}))
	grows(t, first.Token(), second.Token())
	work := <-ended
	if !errors.Is(work.refused, fence.ErrStaleOwner) {
		t.Errorf("the work ended with %v", work.refused)
	}
	s.publish(t, second.Token(), "W2's", int64(len(work.wrote)+1))
	s.wantHistory(t, append(work.wrote, accepted{second.Token(), "W2's"})...)
	s.wantRefused(t, first.Token())
	faults.Unfreeze()
}

// trustedInside checks that the owner's trust ends before the authority's expiry. It reads again where
// a renewal that was on its way has moved that.
func (s *stage) trustedInside(t *testing.T, l *pglease.Lease) {
	t.Helper()
	for {
		before := s.row(t)
		expiry := time.Now().Add(before.expires.Sub(before.now)) // at the latest: that clock was read before
		trusted := time.Now().Add(l.Remaining())
		if after := s.row(t); !after.expires.Equal(before.expires) {
			continue
		}
		if trusted.After(expiry) {
			t.Errorf("trusted for %v after the authority's expiry", trusted.Sub(expiry))
		}
		return
	}
}

// A toiler publishes under its token until it is refused, whatever becomes of the lease.
type toiler struct {
	wrote   []accepted
	refused error
}

func (s *stage) toil(ctx context.Context, token fence.Token, each chan<- int) *toiler {
	var work toiler
	for ctx.Err() == nil {
		done, err := s.reports.Publish(ctx, token, reportstore.Report{
			ID: s.report, Body: []byte{byte('a' + len(work.wrote)%26)}, ExpectedVersion: reportstore.AnyVersion,
		})
		if err != nil {
			work.refused = err
			break
		}
		work.wrote = append(work.wrote, accepted{token, string(byte('a' + (done.Version-1)%26))})
		select {
		case each <- len(work.wrote):
		default:
		}
		time.Sleep(10 * time.Millisecond)
	}
	close(each)
	return &work
}

// TestSequence08_QueuedCommandsOutOfOrder: the report is cut off, the authority is not. Two owners, one
// after the other, send two commands each into the silent network. Then the network delivers all four, in
// each of the 24 orders.
//
//	   W1                   W2                   network                       report
//	1  granted f1                                                              version 1 under f1
//	2  sends a, then b                           keeps a, b
//	3  releases             granted f2
//	4                       sends c, then d      keeps a, b, c, d
//	5                                            delivers in some order        accepts a and b until c or d has
//	                                                                           come, and c and d always
//	6                       establishes                                        watermark f2
//	7  publishes under f1                                                      refused
func TestSequence08_QueuedCommandsOutOfOrder(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	client := newClient(t, s.leases, pglease.Config{})
	for order := range permutations("abcd") {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			own := *s
			own.report = july + "/" + order
			own.deliverInOrder(t, client, order)
		})
	}
}

func (s *stage) deliverInOrder(t *testing.T, client *pglease.Client, order string) {
	t.Helper()
	first := s.take(t, client)
	s.publish(t, first.Token(), "before", 1)
	a, b := s.send(t, first.Token(), "a"), s.send(t, first.Token(), "b")
	release(t, first)
	second, err := client.TryAcquire(t.Context(), s.report)
	if err != nil {
		t.Fatal(err)
	}
	grows(t, first.Token(), second.Token())
	queue := map[string]*queued{"a": a, "b": b, "c": s.send(t, second.Token(), "c"), "d": s.send(t, second.Token(), "d")}

	want, refused := []accepted{{first.Token(), "before"}}, []fence.Token{}
	newest := first.Token()
	for _, name := range strings.Split(order, "") {
		q := queue[name]
		if err := q.deliver(); q.by.Fence() < newest.Fence() {
			refused = append(refused, q.by)
			if !errors.Is(err, fence.ErrStaleOwner) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		newest = q.by
		want = append(want, accepted{q.by, name})
	}
	s.wantHistory(t, want...)
	s.establish(t, second.Token())
	s.publishStale(t, first.Token(), "late")
	s.wantHistory(t, want...)
	s.wantRefused(t, append(refused, first.Token())...)
	release(t, second)
}

// A queued command is one that was sent and has not arrived. Its sender waits for the reply: one that
// gave up would send a request to cancel it.
type queued struct {
	by     fence.Token
	faults *pgleasetest.Faults
	result chan error
}

// send publishes on a connection that has fallen silent.
func (s *stage) send(t *testing.T, by fence.Token, body string) *queued {
	t.Helper()
	q := &queued{by: by, faults: pgleasetest.NewFaults(), result: make(chan error, 1)}
	config, err := pgxpool.ParseConfig(s.reportsURL + "&default_query_exec_mode=exec")
	if err != nil {
		t.Fatal(err)
	}
	sent := make(sending, 1)
	config.ConnConfig.Tracer = sent
	q.faults.Configure(config)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	t.Cleanup(q.faults.Close) // before the pool's
	if err := pool.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	store := storeOf(t, pool)
	q.faults.Freeze()
	go func() {
		_, err := store.Publish(t.Context(), by, reportstore.Report{ID: s.report, Body: []byte(body), ExpectedVersion: reportstore.AnyVersion})
		q.result <- err
	}()
	<-sent
	return q
}

// sending tells that a publication is on its way.
type sending chan struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (s sending) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if isStatement("Replace")(q.SQL) {
		s <- struct{}{}
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (sending) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// deliver returns when the command has been executed and answered.
func (q *queued) deliver() error {
	q.faults.Unfreeze()
	return <-q.result
}

// permutations yields every order of the letters.
func permutations(letters string) func(yield func(string) bool) {
	var all func(prefix, rest string) []string
	all = func(prefix, rest string) (list []string) {
		if rest == "" {
			return []string{prefix}
		}
		for i := range rest {
			list = append(list, all(prefix+rest[i:i+1], rest[:i]+rest[i+1:])...)
		}
		return list
	}
	return slices.Values(all("", letters))
}

// TestPermutations: sequence 8 is worth as much as the orders that it tries.
func TestPermutations(t *testing.T) {
	t.Parallel()
	orders := slices.Sorted(permutations("abcd"))
	if len(slices.Compact(orders)) != 24 {
		t.Error(fmt.Sprint(orders))
	}
}
