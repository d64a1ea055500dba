package httpfence_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/fencetest"
	"github.com/pglease/pglease/pglease/fence/httpfence"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func TestMain(m *testing.M) { pgleasetest.Main(m) }

const pump = "device/pump-7"

func parse(tb testing.TB, resource string, number, lease int) fence.Token {
	tb.Helper()
	token, err := fence.Parse(fmt.Sprintf("%d:0197a3c2-6c1e-7d6f-8f5b-%012x:%s", number, lease, resource))
	if err != nil {
		tb.Fatal(err)
	}
	return token
}

// token makes the token of pump with a fence and the lease that goes with it.
func token(tb testing.TB, number int) fence.Token {
	tb.Helper()
	return parse(tb, pump, number, number)
}

// effects keeps what took effect, in order: the identity is drawn under the lock of the watermark.
const effects = `CREATE TABLE effect (n bigint GENERATED ALWAYS AS IDENTITY, command text, fence bigint, lease_id uuid)`

func newPool(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	pool := pgleasetest.Pool(tb, migrations.Fence)
	if _, err := pool.Exec(tb.Context(), effects); err != nil {
		tb.Fatal(err)
	}
	return pool
}

func newGuard(tb testing.TB, db httpfence.Database, cfg httpfence.Config) *httpfence.Guard {
	tb.Helper()
	if cfg.Resource == nil {
		cfg.Resource = func(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }
	}
	guard, err := httpfence.New(db, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return guard
}

// record is a service's handler: it makes the request's body the next effect.
func record(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = insert(r.Context(), httpfence.Tx(r.Context()), string(text))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("X-Recorded", string(text))
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "recorded %s", text)
}

func insert(ctx context.Context, tx pgx.Tx, text string) error {
	token := httpfence.FromContext(ctx)
	_, err := tx.Exec(ctx, `INSERT INTO effect (command, fence, lease_id) VALUES ($1, $2, $3)`, text, token.Fence(), token.LeaseID().String())
	return err
}

func history(ctx context.Context, pool *pgxpool.Pool) ([]fencetest.Entry, error) {
	rows, err := pool.Query(ctx, `SELECT command, fence, lease_id FROM effect ORDER BY n`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e fencetest.Entry, err error) {
		var lease pgtype.UUID
		err = row.Scan(&e.Command, &e.Fence, &lease)
		e.LeaseID = lease.Bytes
		return e, err
	})
}

// took fails the test unless just these took effect.
func took(tb testing.TB, pool *pgxpool.Pool, want ...string) {
	tb.Helper()
	entries, err := history(tb.Context(), pool)
	if err != nil {
		tb.Fatal(err)
	}
	got := []string{}
	for _, e := range entries {
		got = append(got, e.Command)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		tb.Errorf("%q took effect, want %q", got, want)
	}
}

// stands fails the test unless the watermark of pump has the fence; 0 is none.
func stands(tb testing.TB, pool *pgxpool.Pool, number int64) {
	tb.Helper()
	w, err := fence.NewWatermarks(fence.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	got, err := w.Watermark(tb.Context(), pool, pump)
	if got.Fence != number || (err != nil) != (number == 0) {
		tb.Errorf("the watermark is %+v, %v; want fence %d", got, err, number)
	}
}

// serve serves a handler and returns its URL.
func serve(tb testing.TB, handler http.Handler) string {
	tb.Helper()
	server := httptest.NewServer(handler)
	tb.Cleanup(server.Close)
	return server.URL
}

// A call is a request to be made, and what came of it.
type call struct {
	token    fence.Token
	resource string // default: the token's
	key      string
	sequence string
	body     string
}

func (c call) request(ctx context.Context, url string) (*http.Request, error) {
	if c.resource == "" {
		c.resource = c.token.Resource()
	}
	r, err := http.NewRequestWithContext(httpfence.NewContext(ctx, c.token), http.MethodPut, url+"/"+c.resource, strings.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	if c.key != "" {
		r.Header.Set(httpfence.KeyHeader, c.key)
	}
	if c.sequence != "" {
		r.Header.Set(httpfence.SequenceHeader, c.sequence)
	}
	return r, nil
}

// An answer is a reply that was read.
type answer struct {
	*http.Response
	text string
	err  error // what the reply says of the token
}

// client is a client of guarded services.
var client = &http.Client{Transport: &httpfence.Transport{}}

func (c call) send(ctx context.Context, url string) (answer, error) {
	r, err := c.request(ctx, url)
	if err != nil {
		return answer{}, err
	}
	return exchange(r)
}

func exchange(r *http.Request) (answer, error) {
	response, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	a := answer{Response: response, err: httpfence.ResponseError(response)}
	text, err := io.ReadAll(response.Body)
	a.text = string(text)
	return a, err
}

// must sends it and fails the test unless the reply has the status.
func (c call) must(tb testing.TB, url string, status int) answer {
	tb.Helper()
	a, err := c.send(tb.Context(), url)
	if err != nil {
		tb.Fatal(err)
	}
	if a.StatusCode != status {
		tb.Fatalf("%+v: got %s, want %d: %s", c, a.Status, status, a.text)
	}
	return a
}

func (a answer) problem(tb testing.TB) (doc map[string]any) {
	tb.Helper()
	if got := a.Header.Get("Content-Type"); got != "application/problem+json" {
		tb.Fatalf("%s has the type %q: %s", a.Status, got, a.text)
	}
	if err := json.Unmarshal([]byte(a.text), &doc); err != nil {
		tb.Fatal(err)
	}
	return doc
}
