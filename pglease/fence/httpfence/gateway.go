package httpfence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/fence"
)

// Gateway returns a handler that forwards requests to a service which knows nothing of fences: those
// that change something in the order of their fences, one at a time for each resource, as doc.go
// says exactly; others as they come. Nil sends them by http.DefaultTransport. Keys and sequences are
// passed on and not looked at, since what the device has done cannot be known here. No request is
// passed on as one to switch protocols, to WebSocket for one: what is said there passes no check.
func (g *Guard) Gateway(device *url.URL, transport http.RoundTripper) http.Handler {
	if transport == nil {
		transport = http.DefaultTransport
	}
	proxy := &httputil.ReverseProxy{
		Transport: punctual{transport},
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // the client is told
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(device)
			r.SetXForwarded()
			r.Out.Header.Del("Upgrade") // what is said on a connection that was switched passes no check
			r.Out.Header.Del("Connection")
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if out, ok := w.(*forwarded); ok {
				out.failure = err
				return
			}
			problemOf(fmt.Errorf("%w: %w", ErrNotApplied, err), "").write(w) // it was to change nothing
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if safe(r.Method) {
			proxy.ServeHTTP(w, r)
			return
		}
		g.pass(w, r, func(ctx context.Context, p passage) (*reply, error) { return p.forward(ctx, proxy) })
	})
}

// A punctual transport sends nothing when the time for it is over: who was stopped between the check
// and this has lost the lock. It is asked for the time, as a timer may not have got round to it.
type punctual struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t punctual) RoundTrip(r *http.Request) (*http.Response, error) {
	if deadline, ok := r.Context().Deadline(); ok && !time.Now().Before(deadline) {
		return nil, context.DeadlineExceeded
	}
	return t.RoundTripper.RoundTrip(r)
}

// forwarded is the reply of a device.
type forwarded struct {
	*reply
	failure error // no reply came
}

// forward sends the request to the device while the watermark is locked.
func (p passage) forward(ctx context.Context, proxy *httputil.ReverseProxy) (*reply, error) {
	tx, err := p.hold(ctx)
	if err != nil {
		return nil, err
	}
	// From here on the client's context counts no more: what the device has begun is waited for.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.guard.config.Timeout)
	defer cancel()
	defer p.guard.rollback(ctx, tx)
	out, err := p.send(ctx, proxy)
	if err != nil {
		return nil, err
	}
	// Only now it is certain that the lock was held all the time. Without it, another's request may
	// have overtaken this one.
	if err := tx.Commit(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return out, nil
}

// hold returns a transaction that has the lock of the watermark, at the token, after the watermark
// was raised to it for good: what a device has done must not be forgotten with a transaction.
func (p passage) hold(ctx context.Context) (pgx.Tx, error) {
	for {
		tx, err := p.guard.begin(ctx)
		if err != nil {
			return nil, err
		}
		outcome, err := p.guard.config.Watermarks.Advance(ctx, tx, p.token, fence.Op{Owner: p.op.Owner})
		switch {
		case err == nil && !outcome.Established:
			return tx, nil
		case err == nil:
			err = tx.Commit(ctx)
		case errors.Is(err, fence.ErrStaleOwner):
			_ = tx.Commit(ctx) // keeps the record of the refusal
		}
		p.guard.rollback(ctx, tx)
		if err != nil {
			return nil, err
		}
	}
}

// send has the device do it. It returns nothing but an unknown outcome when the reply did not come
// whole.
func (p passage) send(ctx context.Context, proxy *httputil.ReverseProxy) (_ *reply, err error) {
	out := &forwarded{reply: newReply(p.guard.config.MaxBytes)}
	defer func() {
		switch cut := recover(); cut {
		case nil:
		case http.ErrAbortHandler: // what a reverse proxy panics with
			err = fmt.Errorf("%w: the device's reply was cut off", ErrUnknownOutcome)
		default:
			panic(cut)
		}
	}()
	proxy.ServeHTTP(out, p.request.WithContext(ctx))
	switch {
	case out.failure != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, out.failure)
	case out.large:
		return nil, fmt.Errorf("%w: the device's reply: %w", ErrUnknownOutcome, ErrTooLarge)
	}
	return out.reply, nil
}
