package main

import (
	"bytes"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/cmd/reportpublisher/internal/sales"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
	"github.com/pglease/pglease/reportstore"
)

// publishing publishes sales that are there twice, and calls meanwhile when the publisher, under its
// lease, reads them the second time. It returns what it printed and its error.
func publishing(t *testing.T, url string, meanwhile func()) (string, error) {
	t.Helper()
	month, err := sales.MonthOf(july)
	if err != nil {
		t.Fatal(err)
	}
	var reads atomic.Int32
	open := func() (io.ReadCloser, error) {
		if reads.Add(1) == 2 {
			meanwhile()
		}
		return io.NopCloser(strings.NewReader(header + "corner,2026-07-31,jam-plum,1,3.79\n")), nil
	}
	var out bytes.Buffer
	p := publication{
		database: database{url: url}, report: july, owner: "tester", ttl: 3 * time.Second, wait: time.Minute, out: &out,
		month: month, inputs: []sales.Input{{Name: "sales.csv", Open: open}},
	}
	err = p.run(t.Context())
	return out.String(), err
}

// nothingPublished holds an error to its last line and to telling of the loss at most once.
func nothingPublished(t *testing.T, out string, err error, want string) {
	t.Helper()
	if err == nil || out != "" || !strings.Contains(err.Error(), want) {
		t.Fatalf("printed %q, error %v, want %q", out, err, want)
	}
	if lines := strings.Split(err.Error(), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[1], "Nothing was published: ") {
		t.Errorf("want two lines, the second says what follows: %v", err)
	}
	if strings.Count(err.Error(), "lease lost") > 1 {
		t.Errorf("it tells of the loss more than once: %v", err)
	}
}

// The publisher reads so slowly that its lease expires and another publishes: its own report is
// refused, although its client has not noticed the loss.
func TestPublishStaleOwner(t *testing.T) {
	t.Parallel()
	url, pool := place(t)
	out, err := publishing(t, url, func() { takeOver(t, pool) })
	nothingPublished(t, out, err, "of the other\nNothing was published: this publisher lost its lease and another has taken over")
	call(t.Context(), nil, "read", "--database-url", url, "--report", july).Want(t, exitOK, "theirs", "")
	call(t.Context(), nil, "history", "--database-url", url, "--report", july).Want(t, exitOK, "stale_owner", "")
}

func takeOver(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	pgleasetest.ExpireLease(t, pool, july)
	lease := holder(t, pool, "the other")
	store, err := reportstore.New(pool, reportstore.Config{Owner: "the other"})
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := store.Publish(t.Context(), lease.Token(), reportstore.Report{ID: july, Body: []byte("theirs")}); err != nil {
		t.Error(err)
	}
}

// The lease ends while the publisher reads, as it does for one that was frozen: it learns of that
// before it sends anything, tells it once, and says what follows.
func TestPublishLosesItsLease(t *testing.T) {
	t.Parallel()
	url, pool := place(t)
	read := make(chan struct{})
	t.Cleanup(func() { close(read) })
	out, err := publishing(t, url, func() {
		pgleasetest.ExpireLease(t, pool, july)
		<-read // a pipe that does not end: the loss alone ends the reading
	})
	nothingPublished(t, out, err, "report/2026-07: lease lost: ")
	call(t.Context(), nil, "read", "--database-url", url, "--report", july).Want(t, exitError, "", "report not found")
}

// Somebody who asks for no lease changes the report meanwhile: the version tells.
func TestPublishConflict(t *testing.T) {
	t.Parallel()
	url, pool := place(t)
	out, err := publishing(t, url, func() {
		if _, err := pool.Exec(t.Context(), "UPDATE pglease.reports SET body = 'theirs', version = version + 1"); err != nil {
			t.Error(err)
		}
	})
	nothingPublished(t, out, err, "Nothing was published: the report changed meanwhile")
	call(t.Context(), nil, "read", "--database-url", url, "--report", july).Want(t, exitOK, "theirs", "")
}

// Sales that cannot be read wait for no lease and leave no trace.
func TestMalformedInputIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	url, pool := place(t)
	holder(t, pool, "the other")
	broken := strings.NewReader(header + "corner,2026-07-31,jam-plum,one,3.79\n")
	call(t.Context(), broken, "publish", "--database-url", url, "--report", july, "--wait", "1h", "-").
		Want(t, exitError, "", "\nNothing was published\n")
	var rows int
	const count = `SELECT (SELECT count(*) FROM pglease.reports) + (SELECT count(*) FROM pglease.lease_waiter)`
	if err := pool.QueryRow(t.Context(), count).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows are left, %v", rows, err)
	}
}

// The accepted report counts, whatever becomes of the lease after it.
func TestOutcomeOfALeaseLostTooLate(t *testing.T) {
	t.Parallel()
	loss := &pglease.Error{Op: "release", Resource: july, Err: &pglease.LostError{Cause: pglease.ErrExpired}}
	for name, c := range map[string]struct {
		p      publication
		worked error
		want   string
	}{
		"accepted":  {publication{sent: true, done: true}, nil, ""},
		"in flight": {publication{sent: true}, loss, "It is not known whether the report was published"},
		"not sent":  {publication{}, loss, "Nothing was published"},
		"refused":   {publication{sent: true}, refusef("stale\nNothing was published: late"), "Nothing was published: late"},
	} {
		err := c.p.outcome(c.worked, loss)
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
