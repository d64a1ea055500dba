package proxy_test

import (
	"context"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/torture/proxy"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// a stage is a table that can be seen past the proxy, and a way to it.
type stage struct {
	link *proxy.Link
	url  string // through the link
	past *pgx.Conn
}

func newStage(t *testing.T) *stage {
	t.Helper()
	direct := pgleasetest.URL(t)
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	var target proxy.Target
	target.Set(u.Host)
	link, err := proxy.Open(&target, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := link.Close(); err != nil {
			t.Error(err)
		}
	})
	u.Host = link.Address()
	s := &stage{link: link, url: u.String(), past: connect(t, direct)}
	if _, err := s.past.Exec(t.Context(), "CREATE TABLE t (v text)"); err != nil {
		t.Fatal(err)
	}
	return s
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

const insert = "-- name: Insert :exec\nINSERT INTO t VALUES ($1)"

func isInsert(name string) bool { return name == "Insert" }

func (s *stage) count(t *testing.T) (n int) {
	t.Helper()
	if err := s.past.QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// awaitCount polls until so many rows are there.
func (s *stage) awaitCount(t *testing.T, want int) {
	t.Helper()
	for s.count(t) != want {
		time.Sleep(time.Millisecond)
	}
}

func TestALostRequestIsNotExecuted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	struck := make(chan string, 1)
	s.link.Arm(&proxy.Rule{Kind: proxy.LoseRequest, Match: isInsert, Struck: func(d string) { struck <- d }})
	if _, err := connect(t, s.url).Exec(t.Context(), insert, "x"); err == nil {
		t.Error("no error")
	}
	if got := <-struck; got != "Insert" {
		t.Errorf("struck %q", got)
	}
	if n := s.count(t); n != 0 {
		t.Errorf("%d rows", n)
	}
}

func TestALostReplyIsOfWhatWasCommitted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	struck := make(chan string, 1)
	s.link.Arm(&proxy.Rule{Kind: proxy.LoseReply, Match: isInsert, Struck: func(d string) { struck <- d }})
	if _, err := connect(t, s.url).Exec(t.Context(), insert, "x"); err == nil {
		t.Error("no error")
	}
	if got, want := <-struck, `transaction "I" after it, failed: false`; got != want {
		t.Errorf("struck %q, want %q", got, want)
	}
	if n := s.count(t); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// A statement that is late arrives though its client has given up and gone.
func TestADelayedStatementArrives(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	struck := make(chan string, 1)
	s.link.Arm(&proxy.Rule{Kind: proxy.Delay, Match: isInsert, Wait: 300 * time.Millisecond, Struck: func(d string) { struck <- d }})
	conn := connect(t, s.url)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(ctx, insert, "x"); err == nil {
		t.Error("no error")
	}
	if n := s.count(t); n != 0 {
		t.Errorf("%d rows before it arrived", n)
	}
	<-struck
	s.awaitCount(t, 1)
}

func TestACopyCanBeExecutedElsewhere(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	copied := make(chan proxy.Statement, 1)
	s.link.Arm(&proxy.Rule{Kind: proxy.Copy, Match: isInsert, Copied: func(s proxy.Statement) { copied <- s }})
	if _, err := connect(t, s.url).Exec(t.Context(), insert, "x"); err != nil {
		t.Fatal(err)
	}
	again := <-copied
	err := s.past.PgConn().ExecParams(t.Context(), again.SQL, again.Values, again.Types, again.Formats, nil).Read().Err
	if err != nil {
		t.Fatal(err)
	}
	if n := s.count(t); n != 2 {
		t.Errorf("%d rows", n)
	}
}

// What was sent while the network was silent arrives after it, also where the client has gone.
func TestSilenceKeepsBackAndThenDelivers(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	conn := connect(t, s.url)
	if _, err := conn.Exec(t.Context(), insert, "prepared"); err != nil {
		t.Fatal(err)
	}
	s.link.Silence()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(ctx, insert, "x"); err == nil {
		t.Error("no error")
	}
	if n := s.count(t); n != 1 {
		t.Errorf("%d rows while the network is silent", n)
	}
	s.link.Thaw(10 * time.Millisecond)
	s.awaitCount(t, 2)
}

// The rows of one statement are told of, whoever else sends what, and also where the client does not get them.
func TestRowsAreToldOf(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var mu sync.Mutex
	var told []string
	s.link.Rows("Insert", func(values [][]byte) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, string(values[0]))
	})
	const returning = insert + " RETURNING v"
	conn := connect(t, s.url)
	for _, c := range []struct{ sql, value string }{
		{returning, "a"}, {"-- name: Other :one\nINSERT INTO t VALUES ($1) RETURNING v", "b"}, {returning, "c"},
	} {
		var v string
		if err := conn.QueryRow(t.Context(), c.sql, c.value).Scan(&v); err != nil || v != c.value {
			t.Fatal(v, err)
		}
	}
	struck := make(chan string, 1)
	s.link.Arm(&proxy.Rule{Kind: proxy.LoseReply, Match: isInsert, Struck: func(d string) { struck <- d }})
	if _, err := conn.Exec(t.Context(), returning, "lost"); err == nil {
		t.Error("no error")
	}
	<-struck
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"a", "c", "lost"}; !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
}
