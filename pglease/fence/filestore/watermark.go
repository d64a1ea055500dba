package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/pglease/pglease/pglease/fence"
)

// The bookkeeping of a directory.
const (
	sidecar  = ".pglease"
	markFile = sidecar + "/watermark"
	markNext = sidecar + "/watermark.next"
)

// heading is the first line of a watermark; the token's text and a line break follow.
const heading = "pglease fence 1\n"

// A mark is the watermark as it was read.
type mark struct {
	token fence.Token
	since time.Time
}

// mark reads the watermark. A rename replaces it, so it is whole whether or not the lock is held.
func (s *Store) mark() (m mark, found bool, err error) {
	if found, err := s.hasSidecar(); err != nil || !found {
		return mark{}, false, err
	}
	info, err := s.root.Lstat(markFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return mark{}, false, nil
	case err != nil:
		return mark{}, false, fmt.Errorf("%w: %w", ErrDamaged, err)
	case !info.Mode().IsRegular():
		return mark{}, false, fmt.Errorf("%w: %s is not a regular file", ErrDamaged, markFile)
	}
	text, err := s.root.ReadFile(markFile)
	if err != nil {
		return mark{}, false, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	m = mark{since: info.ModTime()}
	m.token, err = parseMark(string(text))
	if err != nil {
		return mark{}, false, fmt.Errorf("%w: %s: %w", ErrDamaged, markFile, err)
	}
	if m.token.Resource() != s.resource {
		return mark{}, false, fmt.Errorf("%w: the directory is that of %q", fence.ErrOtherResource, m.token.Resource())
	}
	return m, true, nil
}

func parseMark(text string) (fence.Token, error) {
	line, ok := strings.CutPrefix(text, heading)
	line, ok2 := strings.CutSuffix(line, "\n")
	if !ok || !ok2 {
		return fence.Token{}, errors.New("not in the form that this version knows")
	}
	return fence.Parse(line)
}

// hasSidecar tells whether the directory has bookkeeping. A link in its place could lead two Stores
// to two locks.
func (s *Store) hasSidecar() (bool, error) {
	info, err := s.root.Lstat(sidecar)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !info.IsDir():
		return false, fmt.Errorf("%w: %s is not a directory", ErrDamaged, sidecar)
	}
	return true, nil
}

// raise is the rule: it returns nil once the token is the watermark, on disk. The lock is held.
func (s *Store) raise(token fence.Token) error {
	m, found, err := s.mark()
	if err != nil {
		return err
	}
	if found {
		order, err := token.Compare(m.token)
		if err != nil || order < 0 { // the error is that of a shared fence
			return stale(token, m)
		}
		if order == 0 {
			return s.keep(token)
		}
	}
	if err := s.save(markNext, []byte(heading+token.String()+"\n"), "watermark"); err != nil {
		return err
	}
	if err := s.root.Rename(markNext, markFile); err != nil {
		return err
	}
	s.reached("watermark renamed")
	return s.keep(token)
}

// keep has the watermark's name reach the disk. Who wrote it may have been killed before it did so,
// and then a change that relies on it would outlive it in a power cut.
func (s *Store) keep(token fence.Token) error {
	if s.durable == token {
		return nil
	}
	if err := s.sync(sidecar); err != nil {
		return err
	}
	s.durable = token
	s.reached("watermark durable")
	return nil
}

func stale(token fence.Token, m mark) error {
	return &fence.StaleError{
		Resource: token.Resource(), Fence: token.Fence(), LeaseID: token.LeaseID(),
		GreatestFence: m.token.Fence(), GreatestLeaseID: m.token.LeaseID(), Since: m.since,
	}
}
