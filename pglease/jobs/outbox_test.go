package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/jobs"
)

const outboxName = "outbox/main"

// relayToken is a token of a lease; here it is written out.
func relayToken(tb testing.TB, resource string, number int) fence.Token {
	tb.Helper()
	token, err := fence.Parse(fmt.Sprintf("%d:0197a3c2-6c1e-7d6f-8f5b-%012x:%s", number, number, resource))
	if err != nil {
		tb.Fatal(err)
	}
	return token
}

// post is an outbox, and what its relays delivered.
type post struct {
	bench
	outbox *jobs.Outbox

	mu        sync.Mutex
	delivered map[string][]string // by key
	fences    []int64
}

func newPost(t *testing.T) *post {
	t.Helper()
	b := setUp(t)
	outbox, err := b.Outbox(outboxName)
	if err != nil {
		t.Fatal(err)
	}
	return &post{bench: b, outbox: outbox, delivered: map[string][]string{}}
}

func (p *post) write(tx pgx.Tx, messages ...jobs.Message) {
	p.tb.Helper()
	if err := p.outbox.Write(p.tb.Context(), tx, messages...); err != nil {
		p.tb.Error(err)
	}
}

func (p *post) committed(messages ...jobs.Message) {
	p.tb.Helper()
	err := pgx.BeginFunc(p.tb.Context(), p.pool, func(tx pgx.Tx) error {
		return p.outbox.Write(p.tb.Context(), tx, messages...)
	})
	if err != nil {
		p.tb.Fatal(err)
	}
}

func (p *post) relay(number int) *jobs.Relay {
	p.tb.Helper()
	relay, err := p.outbox.Relay(relayToken(p.tb, outboxName, number))
	if err != nil {
		p.tb.Fatal(err)
	}
	return relay
}

func (p *post) publish(_ context.Context, d jobs.Delivery) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delivered[d.Key] = append(p.delivered[d.Key], string(d.Body))
	p.fences = append(p.fences, d.Token.Fence())
	return nil
}

func (p *post) runs(relay *jobs.Relay, want int) {
	p.tb.Helper()
	if n, err := relay.Run(p.tb.Context(), 100, p.publish); err != nil || n != want {
		p.tb.Fatalf("relayed %d, %v; want %d", n, err, want)
	}
}

func (p *post) got(key string, want ...string) {
	p.tb.Helper()
	if got := p.delivered[key]; !slices.Equal(got, want) {
		p.tb.Errorf("%s: delivered %q, want %q", key, got, want)
	}
}

func message(key, body string) jobs.Message {
	return jobs.Message{Key: key, Topic: "events", Body: []byte(body)}
}

// A transaction that drew a lower id and commits later is not skipped.
func TestLowerIDThatCommitsLaterIsRelayed(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	relay := p.relay(7)
	early, err := p.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.write(early, message("a", "lower id"))
	p.committed(message("b", "higher id"), message("b", "\x00\xff"))
	p.runs(relay, 2)
	p.got("b", "higher id", "\x00\xff")
	if err := early.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.runs(relay, 1)
	p.got("a", "lower id")
	p.runs(relay, 0)
	if f := value[int64](p.bench, "SELECT max(relayed_fence) FROM pglease.outbox"); f != 7 {
		t.Errorf("stamped with fence %d", f)
	}
	if n, err := p.outbox.Prune(t.Context(), 0); err != nil || n != 3 {
		t.Errorf("pruned %d, %v", n, err)
	}
}

// Within a key ids are drawn in the order of commits, and relayed so, whatever happens at once.
func TestOutboxKeepsTheOrderOfCommits(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	const keys, writers, each = 3, 6, 30
	var mu sync.Mutex
	committed := map[string][]string{}
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				key, body := string(rune('a'+rand.IntN(keys))), fmt.Sprintf("%d/%d", w, i)
				err := pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error {
					err := p.outbox.Write(t.Context(), tx, message(key, body))
					mu.Lock() // under the key's lock: the order of commits
					committed[key] = append(committed[key], body)
					mu.Unlock()
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		group.Wait()
	}()
	relay := p.relay(1)
	for total, done := 0, false; total < writers*each; {
		n, err := relay.Run(t.Context(), 7, p.publish)
		if err != nil || (done && n == 0) {
			t.Fatalf("relayed %d, then %d, %v", total, n, err)
		}
		total += n
		select {
		case <-written:
			done = true
		default:
		}
	}
	<-written
	for key, want := range committed {
		p.got(key, want...)
	}
}

// A message that cannot be delivered holds up its own key, and no other.
func TestPoisonedMessageBlocksItsKeyOnly(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.committed(message("a", "poison"), message("b", "1"), message("a", "2"), message("b", "3"))
	kaput := errors.New("kaput")
	relay := p.relay(1)
	n, err := relay.Run(t.Context(), 100, func(ctx context.Context, d jobs.Delivery) error {
		if string(d.Body) == "poison" {
			return kaput
		}
		return p.publish(ctx, d)
	})
	if n != 2 || !errors.Is(err, kaput) {
		t.Fatal(n, err)
	}
	p.got("a")
	p.got("b", "1", "3")
	p.runs(relay, 0) // a is held back
	p.runs(p.relay(1), 2)
	p.got("a", "poison", "2")
}

// A relay whose lease is over stamps nothing, and its messages carry the older fence.
func TestStaleRelayIsRefused(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.committed(message("a", "1"), message("a", "2"))
	old, next := p.relay(41), p.relay(42)
	n, err := old.Run(t.Context(), 1, func(ctx context.Context, d jobs.Delivery) error {
		// Here it is paused, and its successor does all.
		p.runs(next, 2) //nolint:contextcheck // it has the test's
		return p.publish(ctx, d)
	})
	if n != 0 || !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("got %d, %v", n, err)
	}
	if !slices.Equal(p.fences, []int64{42, 42, 41}) {
		t.Errorf("fences %v", p.fences)
	}
	if low := value[int64](p.bench, "SELECT min(relayed_fence) FROM pglease.outbox"); low != 42 {
		t.Errorf("stamped with fence %d", low)
	}
	if _, err := p.relay(41).Run(t.Context(), 1, p.publish); !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("older token: %v", err)
	}
	shared, err := fence.Parse("42:0197a3c2-6c1e-7d6f-8f5b-ffffffffffff:" + outboxName)
	if err != nil {
		t.Fatal(err)
	}
	other, err := p.outbox.Relay(shared)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Run(t.Context(), 1, p.publish); !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("another lease with the same fence: %v", err)
	}
	p.runs(next, 0)
	for _, sql := range []string{
		"UPDATE pglease.outbox_relay SET greatest_fence = 1", "DELETE FROM pglease.outbox_relay", "UPDATE pglease.outbox SET relayed_fence = 41",
	} {
		if _, err := p.pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s was accepted", sql)
		}
	}
}

// What was delivered and not marked is delivered again: at least once.
func TestRelayThatDiesDeliversAgain(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.committed(message("a", "1"), message("a", "2"))
	func() {
		defer func() { _ = recover() }()
		_, _ = p.relay(1).Run(t.Context(), 100, func(ctx context.Context, d jobs.Delivery) error {
			_ = p.publish(ctx, d)
			panic("the process dies")
		})
	}()
	ended, cancel := context.WithCancel(t.Context())
	n, err := p.relay(2).Run(ended, 100, func(ctx context.Context, d jobs.Delivery) error {
		cancel() // what was delivered is marked all the same
		return p.publish(ctx, d)
	})
	if n != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("got %d, %v", n, err)
	}
	p.runs(p.relay(3), 1)
	p.got("a", "1", "1", "2")
}
