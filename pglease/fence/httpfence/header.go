package httpfence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/pglease/pglease/pglease/fence"
)

// The headers of a request.
const (
	Header         = "Pglease-Fence"    // the token
	SequenceHeader = "Pglease-Sequence" // the command's place among those of its token; optional
	KeyHeader      = "Idempotency-Key"  // the command's name, for repeating it; optional
)

var (
	// ErrMissing says that a request which changes something carries no token.
	ErrMissing = errors.New("no fence token")

	// ErrMalformed says that a header is not in its form, or comes more than once.
	ErrMalformed = errors.New("malformed header")
)

// Format returns the header's value for a token: its text form, escaped. That of the zero Token is
// empty.
func Format(token fence.Token) string {
	var b strings.Builder
	for _, c := range []byte(token.String()) {
		if plain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~:/", c) >= 0
}

// Parse reads a header's value. It accepts what Format makes and nothing else; the error matches
// ErrMalformed and fence.ErrInvalidToken.
func Parse(value string) (fence.Token, error) {
	token, err := fence.Parse(unescaped(value))
	switch {
	case err != nil:
		return fence.Token{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	case Format(token) != value:
		return fence.Token{}, fmt.Errorf("%w: %w: it is escaped in another way", ErrMalformed, fence.ErrInvalidToken)
	}
	return token, nil
}

// unescaped undoes the escapes. What is not one stays: Parse compares.
func unescaped(value string) string {
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] == '%' && i+2 < len(value) {
			if high, low := digit(value[i+1]), digit(value[i+2]); high >= 0 && low >= 0 {
				b.WriteByte(byte(high<<4 | low))
				i += 2
				continue
			}
		}
		b.WriteByte(value[i])
	}
	return b.String()
}

func digit(c byte) int { return strings.IndexByte("0123456789ABCDEF", c) }

// FromHeader returns the token that a request or its copy carries. The error matches ErrMissing or
// ErrMalformed.
func FromHeader(h http.Header) (fence.Token, error) {
	switch values := h.Values(Header); len(values) {
	case 0:
		return fence.Token{}, ErrMissing
	case 1:
		return Parse(values[0])
	}
	return fence.Token{}, fmt.Errorf("%w: %s comes more than once", ErrMalformed, Header)
}

type tokenKey struct{}

// NewContext returns a context that carries a token: a Transport puts it into the requests made
// with that context.
func NewContext(ctx context.Context, token fence.Token) context.Context {
	return context.WithValue(ctx, tokenKey{}, token)
}

// FromContext returns the token that a context carries, or the zero Token. That of a request which a
// Guard let through carries the request's: so what a handler asks of others, through a Transport and
// with this context, is asked under the same token.
func FromContext(ctx context.Context) fence.Token {
	token, _ := ctx.Value(tokenKey{}).(fence.Token)
	return token
}

// safe tells whether a request changes nothing, as RFC 9110 says of its method.
func safe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}
