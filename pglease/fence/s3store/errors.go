package s3store

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

var (
	// ErrNoConditionalWrites says that the store does not do what this package stands on: it took
	// a write whose condition was false, or refused one whose condition was true.
	ErrNoConditionalWrites = errors.New("the store has no conditional writes")

	// ErrUnknownOutcome says that a write was sent and may have taken effect. Where the error also
	// matches fence.ErrStaleOwner, that was before the newer owner came.
	ErrUnknownOutcome = errors.New("outcome unknown")

	// ErrDamaged says that a pointer cannot be read, or names data that is not there. Nothing is
	// guessed: such a resource takes no writes until somebody has looked at it.
	ErrDamaged = errors.New("pointer is damaged")
)

// An Error tells which operation on which resource an error of a Store belongs to. An error of the
// client is in its chain as it came.
type Error struct {
	Op       string // "open", "put", "delete", "establish", "get", "watermark", "sweep"
	Resource string // where Op is "open": the bucket
	Err      error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("s3store: %s %q: %v", e.Op, e.Resource, e.Err) }

// Unwrap returns the error below.
func (e *Error) Unwrap() error { return e.Err }

func wrap(op, resource string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Resource: resource, Err: err}
}

// An answer is what the store said to a conditional put.
type answer int

const (
	taken   answer = iota // the object is there
	lost                  // the condition was false: for certain nothing was changed
	refused               // the request was wrong in another way: nothing was changed
	unknown               // anything may have happened
)

// answerOf sorts the error of a put that was sent once.
func answerOf(err error) answer {
	if err == nil {
		return taken
	}
	switch status := statusOf(err); {
	case status == http.StatusPreconditionFailed, status == http.StatusConflict:
		return lost
	case status == http.StatusNotFound && codeOf(err) != "NoSuchBucket":
		return lost // some say so where If-Match meets no object
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
		return unknown
	case status >= 400 && status < 500, status == http.StatusNotImplemented:
		return refused
	}
	return unknown
}

// missing tells whether err says that there is no such object.
func missing(err error) bool {
	return statusOf(err) == http.StatusNotFound && codeOf(err) != "NoSuchBucket"
}

// statusOf returns the status of the response that an error came with, 0 where none did.
func statusOf(err error) int {
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) {
		return response.HTTPStatusCode()
	}
	return 0
}

func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}
