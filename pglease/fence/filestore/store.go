package filestore

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/pglease/pglease/pglease/fence"
)

// A Store is a directory whose files one resource's lease protects. It is safe for concurrent use,
// and any number of them, in any number of processes, may be open on one directory.
type Store struct {
	root     *os.Root
	resource string
	turn     chan struct{} // holds one value while a goroutine of this Store has the lock
	durable  fence.Token   // the watermark that this Store saw reach the disk; guarded by the lock
	recorder fence.Recorder
	reached  func(step string)
}

// An Option is one of Open.
type Option func(*Store)

// WithRecorder has the refusals of stale owners kept, as by fence.Watermarks.Recorder. Without one they
// are only returned.
func WithRecorder(r fence.Recorder) Option { return func(s *Store) { s.recorder = r } }

// Open opens a directory, which must exist, for the owners of a resource. It changes nothing. A
// directory belongs to the resource whose owner wrote to it first; that it is another than this one
// is found at the first write.
//
// The error matches fence.ErrInvalidResource, or errors.ErrUnsupported where the operating system
// has no flock. Close the Store when it is no longer needed.
func Open(dir, resource string, options ...Option) (*Store, error) {
	if err := fence.CheckResource(resource); err != nil {
		return nil, wrap("open", dir, err)
	}
	if err := lockable(); err != nil {
		return nil, wrap("open", dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, wrap("open", dir, err)
	}
	s := &Store{root: root, resource: resource, turn: make(chan struct{}, 1), reached: func(string) {}}
	for _, set := range options {
		set(s)
	}
	return s, nil
}

// Close gives the directory back. Calls that are under way may fail.
func (s *Store) Close() error { return s.root.Close() }

// Write makes the content that of the file, under the token. Directories on the way to it are made.
// A file that existed is replaced, its permissions included.
//
// The error matches fence.ErrStaleOwner (a *fence.StaleError), fence.ErrOtherResource,
// fence.ErrInvalidToken, ErrName or ErrDamaged, or the context's where the lock was not free in
// time: then nothing was written. Any other is of the file system, and the content may have been
// written: writing it again finds out.
func (s *Store) Write(ctx context.Context, token fence.Token, name string, content []byte) error {
	return s.change(ctx, "write", token, name, func() error { return s.replace(name, content) })
}

// Remove removes a file under the token. That there is none is no error. Errors are as of Write.
func (s *Store) Remove(ctx context.Context, token fence.Token, name string) error {
	return s.change(ctx, "remove", token, name, func() error { return s.remove(name) })
}

// Establish raises the watermark and changes no file. Call it when the lease was granted, before
// reading what the work is based on: from then on no earlier owner's change is accepted. Doing so
// again is harmless. Errors are as of Write.
func (s *Store) Establish(ctx context.Context, token fence.Token) error {
	return s.recorder.Keep(ctx, wrap("establish", s.resource, s.under(ctx, token, func() error { return nil })))
}

// Read returns a file's content: that of before or of after a write that goes on meanwhile. The error
// matches fs.ErrNotExist where there is no such file, or ErrName.
func (s *Store) Read(name string) ([]byte, error) {
	content, err := s.read(name)
	if err != nil {
		return nil, wrap("read", name, err)
	}
	return content, nil
}

// Watermark returns the newest fence that the directory has accepted, its lease, and since when, by
// this machine's clock. The error matches fence.ErrNotFound where the directory has seen no token,
// fence.ErrOtherResource where it belongs to another resource, or ErrDamaged.
func (s *Store) Watermark() (fence.Watermark, error) {
	m, found, err := s.mark()
	if err == nil && !found {
		err = fence.ErrNotFound
	}
	if err != nil {
		return fence.Watermark{}, wrap("watermark", s.resource, err)
	}
	return fence.Watermark{Fence: m.token.Fence(), LeaseID: m.token.LeaseID(), Since: m.since}, nil
}

// change makes one change to one file under the token.
func (s *Store) change(ctx context.Context, op string, token fence.Token, name string, effect func() error) error {
	if err := checkName(name); err != nil {
		return wrap(op, name, err)
	}
	return s.recorder.Keep(ctx, wrap(op, name, s.under(ctx, token, func() error {
		if err := s.checkWay(name); err != nil {
			return err
		}
		return effect()
	})))
}

// under runs effect while the lock is held and the token is the watermark.
func (s *Store) under(ctx context.Context, token fence.Token, effect func() error) error {
	switch {
	case token.IsZero():
		return fmt.Errorf("%w: it is the zero token", fence.ErrInvalidToken)
	case token.Resource() != s.resource:
		return fmt.Errorf("%w: the directory is that of %q, the token of %q", fence.ErrOtherResource, s.resource, token.Resource())
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s.reached("locked")
	if err := s.raise(token); err != nil {
		return err
	}
	return effect()
}

// scratch is where new content is written. One is enough: only who has the lock writes.
const scratch = sidecar + "/next"

func (s *Store) replace(name string, content []byte) error {
	if err := s.save(scratch, content, "content"); err != nil {
		return err
	}
	if dir := path.Dir(name); dir != "." {
		if err := s.root.MkdirAll(dir, 0o777); err != nil {
			return err
		}
		s.reached("directories made")
	}
	if err := s.root.Rename(scratch, name); err != nil {
		return err
	}
	s.reached("content renamed")
	return s.syncWay(name)
}

func (s *Store) remove(name string) error {
	err := s.root.Remove(name)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	s.reached("file removed")
	return s.syncWay(name)
}

// save writes a file of the bookkeeping and has it reach the disk.
func (s *Store) save(name string, content []byte, what string) error {
	// What a killed process left is removed and not written into: another file may have come to share
	// it, and what is a link would become the content.
	if err := s.root.Remove(name); err != nil && !os.IsNotExist(err) {
		return err
	}
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		return err
	}
	s.reached(what + " written")
	if err := f.Sync(); err != nil {
		return err
	}
	s.reached(what + " synced")
	return f.Close()
}

// syncWay has the directories on the way to a file reach the disk, all of them: one that was there
// already may be the work of a process which died before it had done so.
func (s *Store) syncWay(name string) error {
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if err := s.sync(dir); err != nil && !os.IsNotExist(err) {
			return err
		}
		if dir == "." {
			s.reached("directory synced")
			return nil
		}
	}
}

func (s *Store) sync(dir string) error {
	f, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func (s *Store) read(name string) ([]byte, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := s.checkWay(name); err != nil {
		return nil, err
	}
	f, err := s.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
