package httpfence_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/httpfence"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func TestStaleOwnerIsTold(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	guard := newGuard(t, pool, httpfence.Config{Owner: func(r *http.Request) string { return r.UserAgent() + "\x00\xff" }})
	url := serve(t, guard.Handler(http.HandlerFunc(record)))
	if a := (call{token: token(t, 42), body: "new"}).must(t, url, http.StatusCreated); a.text != "recorded new" || a.Header.Get("X-Recorded") != "new" {
		t.Errorf("the reply is %q, %v", a.text, a.Header)
	}
	a := call{token: token(t, 41), body: "late"}.must(t, url, http.StatusPreconditionFailed)
	doc := a.problem(t)
	for key, want := range map[string]any{
		"type": httpfence.ProblemType + "#stale-owner", "status": 412.0, "resource": pump,
		"fence": 41.0, "greatest_fence": 42.0, "greatest_owner": "Go-http-client/1.1",
	} {
		if doc[key] != want {
			t.Errorf("%s is %v, want %v", key, doc[key], want)
		}
	}
	if strings.Contains(a.text, token(t, 42).LeaseID().String()) {
		t.Errorf("it tells the newer lease: %s", a.text)
	}
	stale := fence.AsStale(a.err)
	if !errors.Is(a.err, fence.ErrStaleOwner) || stale == nil || stale.Fence != 41 || stale.GreatestFence != 42 ||
		stale.LeaseID != token(t, 41).LeaseID() || stale.Since.IsZero() {
		t.Errorf("got %v: %+v", a.err, stale)
	}
	took(t, pool, "new")

	// The refusal is on record, once.
	w, err := fence.NewWatermarks(fence.Config{})
	if err != nil {
		t.Fatal(err)
	}
	rejections, err := w.Rejections(t.Context(), pool, pump)
	if err != nil || len(rejections) != 1 || rejections[0].Refused.Fence != 41 || rejections[0].Refused.Owner != "Go-http-client/1.1" {
		t.Errorf("on record: %+v, %v", rejections, err)
	}
}

func TestRequestsAreRefused(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	guard := newGuard(t, pool, httpfence.Config{MaxBytes: 100})
	url := serve(t, guard.Handler(http.HandlerFunc(record)))
	good := httpfence.Format(token(t, 1))
	for name, c := range map[string]struct {
		headers map[string][]string
		body    string
		status  int
		word    string
		err     error
	}{
		"no token":            {nil, "x", 428, "#missing", httpfence.ErrMissing},
		"no token's form":     {map[string][]string{httpfence.Header: {"42"}}, "x", 400, "#malformed", httpfence.ErrMalformed},
		"two tokens":          {map[string][]string{httpfence.Header: {good, good}}, "x", 400, "#malformed", httpfence.ErrMalformed},
		"another resource":    {map[string][]string{httpfence.Header: {prefix + "device/pump-8"}}, "x", 400, "#other-resource", fence.ErrOtherResource},
		"no number":           {map[string][]string{httpfence.Header: {good}, httpfence.SequenceHeader: {"+1"}}, "x", 400, "#malformed", httpfence.ErrMalformed},
		"number zero":         {map[string][]string{httpfence.Header: {good}, httpfence.SequenceHeader: {"0"}}, "x", 400, "#malformed", httpfence.ErrMalformed},
		"two keys":            {map[string][]string{httpfence.Header: {good}, httpfence.KeyHeader: {"a", "b"}}, "x", 400, "#malformed", httpfence.ErrMalformed},
		"a key that is long":  {map[string][]string{httpfence.Header: {good}, httpfence.KeyHeader: {strings.Repeat("k", 513)}}, "x", 400, "#malformed", httpfence.ErrMalformed},
		"a key that is bytes": {map[string][]string{httpfence.Header: {good}, httpfence.KeyHeader: {"\xff"}}, "x", 400, "#malformed", httpfence.ErrMalformed},
		"a long body":         {map[string][]string{httpfence.Header: {good}}, strings.Repeat("x", 101), 413, "#too-large", httpfence.ErrTooLarge},
		"a long reply":        {map[string][]string{httpfence.Header: {good}}, strings.Repeat("x", 95), 500, "#too-large", httpfence.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url+"/"+pump, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			for key, values := range c.headers {
				r.Header[key] = values
			}
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			said := httpfence.ResponseError(response)
			text, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != c.status || !strings.Contains(string(text), httpfence.ProblemType+c.word+`"`) || !errors.Is(said, c.err) {
				t.Errorf("got %s, %v: %s, %v; want %d, %s", response.Status, said, text, err, c.status, c.word)
			}
		})
	}
	t.Cleanup(func() { // after the parallel ones
		if entries, err := history(t.Context(), pool); len(entries) > 0 {
			t.Errorf("took effect: %v, %v", entries, err)
		}
	})
}

// What a handler declines is not committed, and its owner's fence is kept; so is what breaks.
func TestDeclinedAndBroken(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	guard := newGuard(t, pool, httpfence.Config{Owner: func(r *http.Request) string { return r.Header.Get(httpfence.KeyHeader) }})
	url := serve(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		record(discarded{w}, r)
		tx := httpfence.Tx(r.Context())
		switch r.Header.Get(httpfence.KeyHeader) {
		case "decline":
			http.Error(w, "no such setting", http.StatusUnprocessableEntity)
		case "panic":
			panic(http.ErrAbortHandler)
		case "break":
			_, _ = tx.Exec(r.Context(), `SELECT 1/0`)
		case "end":
			if tx.Commit(r.Context()) == nil {
				t.Error("the handler could end the transaction")
			}
		case "undo":
			_ = tx.Rollback(r.Context())
		case "ROLLBACK":
			_, _ = tx.Exec(r.Context(), `ROLLBACK`)
		}
	})))
	call{token: token(t, 1), body: "first"}.must(t, url, http.StatusOK)
	if a := (call{token: token(t, 2), key: "decline", body: "declined"}).must(t, url, http.StatusUnprocessableEntity); a.text != "no such setting\n" || a.err != nil {
		t.Errorf("the handler's reply came as %q, %v", a.text, a.err)
	}
	stands(t, pool, 2)
	if stale := fence.AsStale(call{token: token(t, 1), body: "late"}.must(t, url, http.StatusPreconditionFailed).err); stale == nil || stale.GreatestOwner != "decline" {
		t.Errorf("who declined is forgotten: %+v", stale)
	}
	if _, err := (call{token: token(t, 3), key: "panic", body: "panicked"}).send(t.Context(), url); err == nil {
		t.Error("there was a reply to a panic")
	}
	if a := (call{token: token(t, 3), key: "break", body: "broken"}).must(t, url, http.StatusServiceUnavailable); !errors.Is(a.err, httpfence.ErrNotApplied) {
		t.Errorf("got %v", a.err)
	}
	stands(t, pool, 2)
	if a := (call{token: token(t, 3), key: "undo", body: "undone"}).must(t, url, http.StatusServiceUnavailable); !errors.Is(a.err, httpfence.ErrNotApplied) {
		t.Errorf("got %v", a.err)
	}
	if a := (call{token: token(t, 3), key: "ROLLBACK", body: "ended"}).must(t, url, http.StatusBadGateway); !errors.Is(a.err, httpfence.ErrUnknownOutcome) {
		t.Errorf("got %v", a.err)
	}
	stands(t, pool, 2)
	call{token: token(t, 2), key: "end", body: "last"}.must(t, url, http.StatusOK)
	call{token: token(t, 1), body: "late"}.must(t, url, http.StatusPreconditionFailed)
	took(t, pool, "first", "last")
}

// A discarded reply is that of a part of a handler.
type discarded struct{ http.ResponseWriter }

func (discarded) WriteHeader(int) {}

func (discarded) Write(p []byte) (int, error) { return len(p), nil }

func TestRepeatedRequestGetsTheSameReply(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	url := serve(t, newGuard(t, pool, httpfence.Config{}).Handler(http.HandlerFunc(record)))
	first := call{token: token(t, 1), key: "k-1", body: "one"}
	for range 3 {
		if a := first.must(t, url, http.StatusCreated); a.text != "recorded one" || a.Header.Get("X-Recorded") != "one" {
			t.Errorf("the reply is %q, %v", a.text, a.Header)
		}
	}
	call{token: token(t, 2), sequence: "7", body: "two"}.must(t, url, http.StatusCreated)
	call{token: token(t, 2), sequence: "7", body: "two"}.must(t, url, http.StatusCreated)
	a := call{token: token(t, 2), sequence: "6", body: "three"}.must(t, url, http.StatusConflict)
	var order *fence.OrderError
	if !errors.As(a.err, &order) || order.Sequence != 6 || order.Last != 7 {
		t.Errorf("got %v", a.err)
	}
	first.must(t, url, http.StatusPreconditionFailed) // its owner is over
	took(t, pool, "one", "two")
}

func TestReadingNeedsNoToken(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	url := serve(t, newGuard(t, pool, httpfence.Config{}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tx := httpfence.Tx(r.Context()); tx != nil {
			t.Error("there is a transaction")
		}
		_, _ = io.WriteString(w, "state")
	})))
	response, err := http.Get(url + "/" + pump)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || string(text) != "state" {
		t.Errorf("got %q, %v", text, err)
	}
	stands(t, pool, 0)
}

// A commit whose reply is lost is told as such; repeated with its key, it shows that it had been done.
func TestLostCommitIsUnknown(t *testing.T) {
	t.Parallel()
	database := pgleasetest.URL(t, migrations.Fence)
	faults := pgleasetest.NewFaults()
	pool := faults.Pool(t, database)
	if _, err := pool.Exec(t.Context(), effects); err != nil {
		t.Fatal(err)
	}
	url := serve(t, newGuard(t, pool, httpfence.Config{}).Handler(http.HandlerFunc(record)))
	commit := func(sql string) bool { return strings.EqualFold(sql, "commit") }
	c := call{token: token(t, 1), key: "k", body: "once"}

	faults.LoseNextReply(commit)
	if a := c.must(t, url, http.StatusBadGateway); !errors.Is(a.err, httpfence.ErrUnknownOutcome) {
		t.Errorf("got %v", a.err)
	}
	if a := c.must(t, url, http.StatusCreated); a.text != "recorded once" {
		t.Errorf("got %q", a.text)
	}
	took(t, pool, "once")
}

// A service that stops in the middle gives the resource back: Postgres ends its transaction. What the
// pool's sessions allow is not raised.
func TestTransactionsAreBounded(t *testing.T) {
	t.Parallel()
	for own, want := range map[string]string{"0": "7s", "1d": "7s", "1234ms": "1234ms"} {
		pool := pools.Like(t, newPool(t), pools.Settings(map[string]string{"idle_in_transaction_session_timeout": own}))
		var limit, isolation string
		url := serve(t, newGuard(t, pool, httpfence.Config{Timeout: 5 * time.Second}).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			err := httpfence.Tx(r.Context()).QueryRow(r.Context(), `SELECT current_setting('idle_in_transaction_session_timeout'),
				current_setting('transaction_isolation')`).Scan(&limit, &isolation)
			if err != nil {
				t.Error(err)
			}
			if _, ok := r.Context().Deadline(); !ok {
				t.Error("the handler has no deadline")
			}
		})))
		call{token: token(t, 1)}.must(t, url, http.StatusOK)
		if limit != want || isolation != "read committed" {
			t.Errorf("a session with %s: the limit is %s, the isolation %s", own, limit, isolation)
		}
	}
}

func TestNewTellsAllProblems(t *testing.T) {
	t.Parallel()
	_, err := httpfence.New(nil, httpfence.Config{Timeout: -1, MaxBytes: -1})
	for _, problem := range []string{"pool", "Resource", "Timeout", "MaxBytes"} {
		if err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%v says nothing of %s", err, problem)
		}
	}
}
