package httpfence_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/httpfence"
)

// A closer tells whether it was closed.
type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error {
	c.closed = true
	return nil
}

func TestTransportAddsTheToken(t *testing.T) {
	t.Parallel()
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Join(r.Header.Values(httpfence.Header), " and "))
	}))
	one, two, three := token(t, 1), token(t, 2), token(t, 3)
	for name, c := range map[string]struct {
		method              string
		own, context, given fence.Token
		want                string
	}{
		"its own":               {http.MethodPost, one, fence.Token{}, fence.Token{}, httpfence.Format(one)},
		"the context's":         {http.MethodPost, fence.Token{}, two, fence.Token{}, httpfence.Format(two)},
		"the context's first":   {http.MethodDelete, one, two, fence.Token{}, httpfence.Format(two)},
		"what is there":         {http.MethodPost, one, two, three, httpfence.Format(three)},
		"to a reading one too":  {http.MethodGet, one, fence.Token{}, fence.Token{}, httpfence.Format(one)},
		"none to a reading one": {http.MethodGet, fence.Token{}, fence.Token{}, fence.Token{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			if !c.context.IsZero() {
				ctx = httpfence.NewContext(ctx, c.context)
			}
			r, err := http.NewRequestWithContext(ctx, c.method, url, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if !c.given.IsZero() {
				r.Header.Set(httpfence.Header, httpfence.Format(c.given))
			}
			before := r.Header.Clone()
			response, err := (&httpfence.Transport{Token: c.own}).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if got, err := io.ReadAll(response.Body); err != nil || string(got) != c.want {
				t.Errorf("it was sent with %q, %v; want %q", got, err, c.want)
			}
			if len(r.Header) != len(before) {
				t.Errorf("the caller's request was changed: %v", r.Header)
			}
		})
	}
}

func TestTransportSendsNothingWithoutAToken(t *testing.T) {
	t.Parallel()
	url := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was sent") }))
	body := &closer{Reader: strings.NewReader("text")}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if !errors.Is(err, httpfence.ErrMissing) || !body.closed {
		t.Errorf("got %v, the body closed: %v", err, body.closed)
	}
	if err == nil {
		response.Body.Close()
	}
}

// A redirect to another host is followed without the token, and not at all where it needs one.
func TestTransportAndRedirects(t *testing.T) {
	t.Parallel()
	echo := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "token "+r.Header.Get(httpfence.Header))
	}
	elsewhere := serve(t, http.HandlerFunc(echo))
	mux := http.NewServeMux()
	mux.HandleFunc("/end", echo)
	mux.Handle("/here", http.RedirectHandler("/end", http.StatusTemporaryRedirect))
	mux.Handle("/there", http.RedirectHandler(elsewhere+"/back", http.StatusTemporaryRedirect))
	home := serve(t, mux)
	c := &http.Client{Transport: &httpfence.Transport{Token: token(t, 1)}}
	for _, x := range []struct{ method, path, want string }{
		{http.MethodPost, "/here", "token " + httpfence.Format(token(t, 1))},
		{http.MethodGet, "/there", "token "},
		{http.MethodPost, "/there", ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), x.method, home+x.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := c.Do(r)
		if x.want == "" {
			if !errors.Is(err, httpfence.ErrMissing) {
				t.Errorf("%s %s: got %v, want ErrMissing", x.method, x.path, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(text) != x.want {
			t.Errorf("%s %s: got %q, %v; want %q", x.method, x.path, text, err, x.want)
		}
	}
}

// Other replies are nobody's business, and can be read in full.
func TestResponseErrorOfOthers(t *testing.T) {
	t.Parallel()
	for media, text := range map[string]string{
		"text/plain":                              "stale",
		"application/problem+json":                "{",
		"application/problem+json; charset=utf-8": `{"type":"https://example.com/problems#stale-owner","status":412}`,
		"application/problem+JSON":                `{"type":"` + httpfence.ProblemType + `#of-tomorrow"}`,
		"":                                        "",
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", media)
		w.WriteHeader(http.StatusPreconditionFailed)
		_, _ = w.WriteString(text)
		response := w.Result()
		if err := httpfence.ResponseError(response); err != nil {
			t.Errorf("%s %s: got %v", media, text, err)
		}
		if got, err := io.ReadAll(response.Body); err != nil || string(got) != text {
			t.Errorf("%s: the body is %q, %v; want %q", media, got, err, text)
		}
		response.Body.Close()
	}
}
