package httpfence

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
)

// A reply is kept until it is known whether it is true. It is a http.ResponseWriter.
type reply struct {
	header http.Header
	sent   http.Header // the header at the time of WriteHeader
	status int
	body   []byte
	max    int64
	large  bool // more was written than is kept
}

func newReply(limit int64) *reply { return &reply{header: http.Header{}, max: limit} }

// Header implements http.ResponseWriter.
func (r *reply) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter. The interim replies 1xx are not passed on.
func (r *reply) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status, r.sent = status, r.header.Clone()
	}
}

// Write implements http.ResponseWriter.
func (r *reply) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if int64(len(r.body))+int64(len(p)) > r.max {
		r.large = true
		return 0, ErrTooLarge
	}
	r.body = append(r.body, p...)
	return len(p), nil
}

// declined tells whether the handler says that it has done nothing.
func (r *reply) declined() bool { return r.status >= http.StatusBadRequest }

// send passes it on.
func (r *reply) send(w http.ResponseWriter) {
	r.WriteHeader(http.StatusOK)
	maps.Copy(w.Header(), r.sent)
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body) // a client that has gone away needs no answer
}

// A kept reply is one in its form for the database.
type kept struct {
	Status int         `json:"status"`
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
}

func (r *reply) keep() ([]byte, error) {
	r.WriteHeader(http.StatusOK)
	return json.Marshal(kept{r.status, r.sent, r.body})
}

// restored is a reply that was kept.
func restored(text []byte) (*reply, error) {
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return nil, err
	}
	return &reply{sent: k.Header, status: k.Status, body: k.Body}, nil
}

// buffered is the request with its body read.
func buffered(w http.ResponseWriter, r *http.Request, limit int64) (*http.Request, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		return nil, err
	}
	r = r.WithContext(r.Context())
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return r, nil
}
