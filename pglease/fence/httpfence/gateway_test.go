package httpfence_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/fence/httpfence"
)

// A slow device takes its time: each request is seen, and done when it is let go.
type slow struct {
	device
	seen  chan string
	done  chan struct{}
	letGo func()
}

func newSlow() *slow {
	done := make(chan struct{})
	return &slow{seen: make(chan string, 10), done: done, letGo: sync.OnceFunc(func() { close(done) })}
}

// ServeHTTP implements http.Handler.
func (s *slow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	s.seen <- string(text)
	<-s.done
	r.Body = io.NopCloser(strings.NewReader(string(text)))
	s.device.ServeHTTP(w, r)
}

// gateways returns two before one device, which share nothing but the database.
func gateways(t *testing.T, pool *pgxpool.Pool, d http.Handler, cfg httpfence.Config) (first, second string) {
	t.Helper()
	at, err := url.Parse(serve(t, d))
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, newGuard(t, pool, cfg).Gateway(at, nil)), serve(t, newGuard(t, pool, cfg).Gateway(at, nil))
}

// meanwhile sends it while the test does something else.
func (c call) meanwhile(t *testing.T, url string) func() {
	t.Helper()
	return func() {
		if a, err := c.send(t.Context(), url); err != nil || a.StatusCode != http.StatusOK {
			t.Errorf("%+v: got %+v, %v", c, a, err)
		}
	}
}

// waiting returns when a session waits for a lock.
func waiting(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for n := 0; n == 0; {
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// While the device is at one request, the next owner's waits, at whatever gateway; and the fence of
// the first is on record already.
func TestGatewayKeepsTheOrder(t *testing.T) {
	t.Parallel()
	pool, d := newPool(t), newSlow()
	defer d.letGo()
	first, second := gateways(t, pool, d, httpfence.Config{})
	var sending sync.WaitGroup
	sending.Go(call{token: token(t, 1), body: "one"}.meanwhile(t, first))
	if got := <-d.seen; got != "one" {
		t.Fatalf("the device sees %q", got)
	}
	stands(t, pool, 1)
	sending.Go(call{token: token(t, 2), body: "two"}.meanwhile(t, second))
	waiting(t, pool)
	if len(d.seen) > 0 {
		t.Error("the device sees two requests at once")
	}
	d.letGo()
	sending.Wait()
	call{token: token(t, 1), body: "late"}.must(t, first, http.StatusPreconditionFailed)
	if got := d.history(); len(got) != 2 || got[0].Command != "one" || got[1].Command != "two" {
		t.Errorf("the device has done %v", got)
	}
}

// A client that goes away does not take back what the device has begun.
func TestGatewayWaitsForTheDevice(t *testing.T) {
	t.Parallel()
	pool, d := newPool(t), newSlow()
	defer d.letGo()
	first, second := gateways(t, pool, d, httpfence.Config{})
	ctx, goAway := context.WithCancel(t.Context())
	defer goAway()
	var sending sync.WaitGroup
	one := call{token: token(t, 1), body: "one"}
	sending.Go(func() {
		if _, err := one.send(ctx, first); err == nil {
			t.Error("there was a reply")
		}
	})
	<-d.seen
	goAway()
	sending.Wait()
	sending.Go(call{token: token(t, 2), body: "two"}.meanwhile(t, second))
	waiting(t, pool)
	if len(d.seen) > 0 {
		t.Error("the next request did not wait")
	}
	d.letGo()
	sending.Wait()
	if got := d.history(); len(got) != 2 || got[0].Command != "one" {
		t.Errorf("the device has done %v", got)
	}
}

func TestGatewayWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	pool, d := newPool(t), newSlow()
	defer d.letGo()
	first, _ := gateways(t, pool, d, httpfence.Config{Timeout: time.Second})
	second, _ := gateways(t, pool, d, httpfence.Config{})
	a := call{token: token(t, 1), body: "one"}.must(t, first, http.StatusBadGateway)
	if !errors.Is(a.err, httpfence.ErrUnknownOutcome) {
		t.Errorf("got %v", a.err)
	}
	d.letGo()
	call{token: token(t, 2), body: "two"}.must(t, second, http.StatusOK)
	stands(t, pool, 2)
}

// A reply that breaks off, or is too long, leaves the client in the dark: the device has acted.
func TestGatewayWithBrokenReplies(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 10))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"too long": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 200)) },
		"none":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			first, second := gateways(t, pool, handler, httpfence.Config{MaxBytes: 100})
			for _, gateway := range []string{first, second} {
				if a := (call{token: token(t, 1), body: "x"}).must(t, gateway, http.StatusBadGateway); !errors.Is(a.err, httpfence.ErrUnknownOutcome) {
					t.Errorf("got %v", a.err)
				}
			}
		})
	}
}

// What the device says is passed on, errors too; and readers need no token.
func TestGatewayPassesOn(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	gateway, _ := gateways(t, pool, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Device", r.Method+" "+r.URL.Path+" "+r.Header.Get(httpfence.Header))
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(text)
	}), httpfence.Config{})
	a := call{token: token(t, 1), body: "tea"}.must(t, gateway, http.StatusTeapot)
	if a.text != "tea" || a.err != nil || a.Header.Get("X-Device") != "PUT /"+pump+" "+httpfence.Format(token(t, 1)) {
		t.Errorf("got %q, %v, %v", a.text, a.Header, a.err)
	}
	call{token: token(t, 1), resource: "device/pump-8"}.must(t, gateway, http.StatusBadRequest)
	response, err := http.Get(gateway + "/" + pump)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got := response.Header.Get("X-Device"); got != "GET /"+pump { // a header is trimmed
		t.Errorf("reading: got %q", got)
	}
}

// What is said on a connection that was switched to another protocol would pass no check, so the
// device is not asked to switch: not by a reader either, who needs no token.
func TestGatewayDoesNotSwitchProtocols(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	gateway, _ := gateways(t, pool, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
			w.Header().Set("Connection", "Upgrade")
			w.WriteHeader(http.StatusSwitchingProtocols)
			return
		}
		w.WriteHeader(http.StatusUpgradeRequired)
	}), httpfence.Config{})
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		r, err := http.NewRequestWithContext(t.Context(), method, gateway+"/"+pump, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		r.Header.Set(httpfence.Header, httpfence.Format(token(t, 1)))
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusUpgradeRequired {
			t.Errorf("%s: got %s", method, response.Status)
		}
	}
}
