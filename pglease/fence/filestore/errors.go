package filestore

import (
	"errors"
	"fmt"
)

var (
	// ErrName is returned for a name that no file of a Store can have: one that fs.ValidPath
	// refuses, such as an absolute one or one with "..", or one on whose way there is a symbolic
	// link, a file that is not a regular one, a Store's bookkeeping, or the directory of another Store.
	ErrName = errors.New("invalid file name")

	// ErrDamaged says that the watermark cannot be read, so that nothing can be allowed.
	ErrDamaged = errors.New("watermark is damaged")
)

// An Error tells which operation on which file an error of a Store belongs to. An error of the file
// system is in its chain as it came.
type Error struct {
	Op   string // "open", "write", "remove", "establish", "read", "watermark"
	Name string // the file; the directory or its resource where no file is meant
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("filestore: %s %q: %v", e.Op, e.Name, e.Err) }

// Unwrap returns the error below.
func (e *Error) Unwrap() error { return e.Err }

func wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Name: name, Err: err}
}
