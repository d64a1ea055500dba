//go:build linux

package torture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/pglease/pglease/internal/torture/history"
	"github.com/pglease/pglease/pglease/fence"
)

// A watch writes down in which order files appear in directories, as the kernel tells it: a file
// store keeps no history of its own.
type watch struct {
	file   *os.File
	joined sync.WaitGroup

	mu    sync.Mutex
	dirs  map[int32]string
	names []string // of the files that appeared, in their order
	err   error
}

func newWatch() (*watch, error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	w := &watch{file: os.NewFile(uintptr(fd), "inotify"), dirs: map[int32]string{}}
	w.joined.Go(w.read)
	return w, nil
}

// add watches a directory, before anything is written to it.
func (w *watch) add(dir string) error {
	w.mu.Lock() // no event of it is read before it is known
	defer w.mu.Unlock()
	conn, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	var id int
	var failure error
	err = conn.Control(func(fd uintptr) {
		id, failure = syscall.InotifyAddWatch(int(fd), dir, syscall.IN_MOVED_TO)
	})
	if err = errors.Join(err, failure); err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	w.dirs[int32(id)] = dir //nolint:gosec // a small number
	return nil
}

// close ends the watch and returns the paths of what appeared, in order.
func (w *watch) close() ([]string, error) {
	_ = w.file.Close()
	w.joined.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.names, w.err
}

func (w *watch) read() {
	buf := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		w.take(buf[:n])
	}
}

func (w *watch) take(events []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(events) >= syscall.SizeofInotifyEvent {
		id := int32(binary.NativeEndian.Uint32(events)) //nolint:gosec // it is one
		mask := binary.NativeEndian.Uint32(events[4:])
		length := binary.NativeEndian.Uint32(events[12:])
		name := events[syscall.SizeofInotifyEvent : syscall.SizeofInotifyEvent+length]
		events = events[syscall.SizeofInotifyEvent+length:]
		if mask&syscall.IN_Q_OVERFLOW != 0 {
			w.err = errors.New("the kernel dropped events: the order of files is not known")
			continue
		}
		if mask&syscall.IN_MOVED_TO == 0 {
			continue
		}
		name, _, _ = bytes.Cut(name, []byte{0})
		w.names = append(w.names, filepath.Join(w.dirs[id], string(name)))
	}
}

// filesWritten reads what the files that appeared say of themselves. A file's own time is that of
// its last write, before it got its name.
func filesWritten(paths []string) ([]history.Write, error) {
	writes := make([]history.Write, 0, len(paths))
	for i, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		lines := strings.Split(string(text), "\n")
		if len(lines) != 3 {
			return nil, fmt.Errorf("%s has %d lines: %q", path, len(lines), text)
		}
		token, err := fence.Parse(lines[1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		writes = append(writes, history.Write{
			Store: history.Files, Resource: token.Resource(), Number: int64(i + 1), Key: lines[0],
			Fence: token.Fence(), Lease: token.LeaseID().String(), At: info.ModTime(),
		})
	}
	return writes, nil
}
