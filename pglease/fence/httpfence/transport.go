package httpfence

import (
	"fmt"
	"net/http"

	"github.com/pglease/pglease/pglease/fence"
)

// A Transport is an http.RoundTripper that adds the token to requests. It is safe for concurrent
// use, as far as its Base is.
//
// A request that changes something is not sent without a token: the error then matches ErrMissing.
// The header of a request that has one is left as it is. A request that follows a redirect to
// another host gets no token, since that host was not meant; nor, for the same reason, is it sent if
// it needs one.
//
// A reply is returned as it is, whatever its status: see ResponseError.
type Transport struct {
	// Token goes into each request whose context carries none (see NewContext): that of the lease
	// which the client works under.
	Token fence.Token

	// Base sends the requests. Default: http.DefaultTransport.
	Base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if len(r.Header.Values(Header)) > 0 {
		return base.RoundTrip(r)
	}
	token := FromContext(r.Context())
	if token.IsZero() {
		token = t.Token
	}
	if strayed(r) {
		token = fence.Token{}
	}
	switch {
	case !token.IsZero():
		r = r.Clone(r.Context()) // a RoundTripper must not change its request
		r.Header.Set(Header, Format(token))
	case !safe(r.Method):
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper does, also when it fails
		}
		return nil, fmt.Errorf("httpfence: %s %s: %w", r.Method, r.URL.Host, ErrMissing)
	}
	return base.RoundTrip(r)
}

// strayed tells whether redirects have led a request to another host than it was made for.
func strayed(r *http.Request) bool {
	for at := r; at.Response != nil && at.Response.Request != nil; {
		at = at.Response.Request
		if at.URL.Host != r.URL.Host {
			return true
		}
	}
	return false
}
