package httpfence_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"testing"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/fencetest"
	"github.com/pglease/pglease/pglease/fence/httpfence"
)

// crashHeader has a service die in the middle of a request.
const crashHeader = "X-Crash"

func TestHandlerConforms(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(t *testing.T) fencetest.Resource {
		t.Helper()
		pool := newPool(t)
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			record(w, r)
			if r.Header.Get(crashHeader) != "" {
				_ = httpfence.Tx(r.Context()).Conn().PgConn().Conn().Close() // as a killed process does
				panic(http.ErrAbortHandler)
			}
		})
		urls := []string{serve(t, newGuard(t, pool, httpfence.Config{}).Handler(handler)), serve(t, newGuard(t, pool, httpfence.Config{}).Handler(handler))}
		send := func(ctx context.Context, token fence.Token, c fencetest.Command, crash bool) error {
			r, err := call{token: token, key: c.ID, sequence: strconv.FormatInt(c.Sequence, 10), body: c.ID}.request(ctx, urls[rand.IntN(2)])
			if err != nil {
				return err
			}
			if crash {
				r.Header.Set(crashHeader, "now")
			}
			return sent(r, http.StatusCreated)
		}
		watermarks, err := fence.NewWatermarks(fence.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return fencetest.Resource{
			Write: func(ctx context.Context, token fence.Token, c fencetest.Command) error {
				return send(ctx, token, c, false)
			},
			Crash: func(ctx context.Context, token fence.Token, c fencetest.Command) error {
				return send(ctx, token, c, true)
			},
			Establish: func(ctx context.Context, token fence.Token) error {
				return watermarks.Establish(ctx, pool, token)
			},
			History: func(ctx context.Context) ([]fencetest.Entry, error) { return history(ctx, pool) },
			Repeats: true, Sequences: true,
		}
	})
}

// sent makes a request and returns what its reply says.
func sent(r *http.Request, status int) error {
	a, err := exchange(r)
	switch {
	case err != nil:
		return err
	case a.err != nil:
		return a.err
	case a.StatusCode != status:
		return fmt.Errorf("got %s: %s", a.Status, a.text)
	}
	return nil
}

// A device does what it is told, in the order in which it is told.
type device struct {
	mu   sync.Mutex
	done []fencetest.Entry
}

// ServeHTTP implements http.Handler.
func (d *device) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, err := httpfence.FromHeader(r.Header) // for the record alone
	text, err2 := io.ReadAll(r.Body)
	if err != nil || err2 != nil {
		http.Error(w, "what?", http.StatusTeapot)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done = append(d.done, fencetest.Entry{Command: string(text), Fence: token.Fence(), LeaseID: token.LeaseID()})
}

func (d *device) history() []fencetest.Entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]fencetest.Entry(nil), d.done...)
}

// dead is a transport of a gateway that dies instead of sending.
type dead struct{}

// RoundTrip implements http.RoundTripper.
func (dead) RoundTrip(*http.Request) (*http.Response, error) { panic(http.ErrAbortHandler) }

func TestGatewayConforms(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(t *testing.T) fencetest.Resource {
		t.Helper()
		pool, d := newPool(t), &device{}
		at, err := url.Parse(serve(t, d))
		if err != nil {
			t.Fatal(err)
		}
		gateway := func(transport http.RoundTripper) string {
			return serve(t, newGuard(t, pool, httpfence.Config{}).Gateway(at, transport))
		}
		urls, dying := []string{gateway(nil), gateway(nil)}, gateway(dead{})
		send := func(ctx context.Context, url string, token fence.Token, c fencetest.Command) error {
			r, err := call{token: token, body: c.ID}.request(ctx, url)
			if err != nil {
				return err
			}
			return sent(r, http.StatusOK)
		}
		watermarks, err := fence.NewWatermarks(fence.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return fencetest.Resource{
			Write: func(ctx context.Context, token fence.Token, c fencetest.Command) error {
				return send(ctx, urls[rand.IntN(2)], token, c)
			},
			Crash: func(ctx context.Context, token fence.Token, c fencetest.Command) error {
				return send(ctx, dying, token, c)
			},
			Establish: func(ctx context.Context, token fence.Token) error {
				return watermarks.Establish(ctx, pool, token)
			},
			History: func(context.Context) ([]fencetest.Entry, error) { return d.history(), nil },
		}
	})
}
