package httpfence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/pglease/pglease/pglease/fence"
)

// ProblemType is what the types of this package's problem documents begin with.
const ProblemType = "https://github.com/pglease/pglease/problems"

var (
	// ErrNotApplied says that nothing was changed, for a reason that may pass: send the request
	// again.
	ErrNotApplied = errors.New("not applied")

	// ErrUnknownOutcome says that the request may have taken effect. To find out, repeat it with the
	// same Idempotency-Key where a handler keeps those, or look.
	ErrUnknownOutcome = errors.New("outcome unknown")

	// ErrTooLarge says that a request or its reply is larger than Config.MaxBytes; nothing was
	// changed.
	ErrTooLarge = errors.New("too large")
)

// A kind is one row of the table in the package's documentation.
type kind struct {
	word   string
	status int
	title  string
	err    error
}

var (
	missing       = kind{"#missing", http.StatusPreconditionRequired, "The request needs a fence token", ErrMissing}
	malformed     = kind{"#malformed", http.StatusBadRequest, "A header is not in its form", ErrMalformed}
	otherResource = kind{"#other-resource", http.StatusBadRequest, "The token is that of another resource", fence.ErrOtherResource}
	staleOwner    = kind{"#stale-owner", http.StatusPreconditionFailed, "The resource has accepted a newer owner", fence.ErrStaleOwner}
	outOfOrder    = kind{"#out-of-order", http.StatusConflict, "The owner has sent a later command already", fence.ErrOutOfOrder}
	requestLarge  = kind{"#too-large", http.StatusRequestEntityTooLarge, "The request is too large", ErrTooLarge}
	replyLarge    = kind{"#too-large", http.StatusInternalServerError, "The reply is too large; nothing was changed", ErrTooLarge}
	unknown       = kind{"#unknown-outcome", http.StatusBadGateway, "The request may have taken effect", ErrUnknownOutcome}
	notApplied    = kind{"#not-applied", http.StatusServiceUnavailable, "Nothing was changed", ErrNotApplied}
)

// kinds in the order in which an error is held against them: one of which nothing else is known was
// not applied.
var kinds = []kind{unknown, missing, otherResource, staleOwner, outOfOrder, replyLarge, malformed, notApplied}

func kindOf(err error) kind {
	var body *http.MaxBytesError
	if errors.As(err, &body) {
		return requestLarge
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k
		}
	}
	return notApplied
}

// A problem is a document of RFC 9457.
type problem struct {
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Resource string `json:"resource,omitempty"`

	// Of a stale owner. The lease of the newer one is not told: who has it could pass for its owner.
	Fence         int64      `json:"fence,omitempty"`
	GreatestFence int64      `json:"greatest_fence,omitempty"`
	GreatestOwner string     `json:"greatest_owner,omitempty"`
	Since         *time.Time `json:"since,omitempty"`

	// Of a command out of order.
	Sequence     int64 `json:"sequence,omitempty"`
	LastSequence int64 `json:"last_sequence,omitempty"`
}

func problemOf(err error, resource string) problem {
	k := kindOf(err)
	p := problem{Type: ProblemType + k.word, Title: k.title, Status: k.status, Resource: resource}
	if stale := fence.AsStale(err); stale != nil && k == staleOwner {
		p.Fence, p.GreatestFence, p.GreatestOwner = stale.Fence, stale.GreatestFence, stale.GreatestOwner
		if !stale.Since.IsZero() {
			p.Since = &stale.Since
		}
	}
	var order *fence.OrderError
	if errors.As(err, &order) {
		p.Sequence, p.LastSequence = order.Sequence, order.Last
	}
	return p
}

const problemMedia = "application/problem+json"

func (p problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		http.Error(w, p.Title, p.Status)
		return
	}
	w.Header().Set("Content-Type", problemMedia)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // a client that has gone away needs no answer
}

// maxProblem is more than any problem document of this package has.
const maxProblem = 64 << 10

// ResponseError returns what a reply says about the token or the transaction, as an error: one that
// matches fence.ErrStaleOwner (a *fence.StaleError, without the newer lease), fence.ErrOutOfOrder (a
// *fence.OrderError), fence.ErrOtherResource, ErrMissing, ErrMalformed, ErrTooLarge, ErrNotApplied or
// ErrUnknownOutcome. It is nil where the reply is not a problem document of this package, whatever
// its status. The body may still be read afterwards, and must be closed as ever.
func ResponseError(response *http.Response) error {
	media, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil || media != problemMedia {
		return nil //nolint:nilerr // another's reply
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxProblem))
	response.Body = rest{io.MultiReader(bytes.NewReader(text), response.Body), response.Body}
	if err != nil {
		return nil //nolint:nilerr // the next read meets the same
	}
	var p problem
	if json.Unmarshal(text, &p) != nil {
		return nil
	}
	if word, ok := strings.CutPrefix(p.Type, ProblemType); ok {
		return p.err(word, response.Request)
	}
	return nil
}

// A rest is a body of which the beginning was read.
type rest struct {
	io.Reader
	io.Closer
}

func (p problem) err(word string, r *http.Request) error {
	var err error
	switch word {
	case staleOwner.word:
		err = p.stale(r)
	case outOfOrder.word:
		err = &fence.OrderError{Sequence: p.Sequence, Last: p.LastSequence}
	default:
		for _, k := range kinds {
			if k.word == word {
				err = k.err
			}
		}
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("httpfence: %q: %w", p.Resource, err)
}

// stale tells of the token that was sent as much as the request does.
func (p problem) stale(r *http.Request) error {
	stale := &fence.StaleError{
		Resource: p.Resource, Fence: p.Fence, GreatestFence: p.GreatestFence, GreatestOwner: p.GreatestOwner,
	}
	if p.Since != nil {
		stale.Since = *p.Since
	}
	if r != nil {
		if token, err := FromHeader(r.Header); err == nil && token.Resource() == p.Resource {
			stale.LeaseID = token.LeaseID()
		}
	}
	return stale
}
