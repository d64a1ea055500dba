package sales

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Stdin is the name that stands for the standard input.
const Stdin = "-"

// An Input is one file of sales: its name for messages, and how to open it, which may be done again.
type Input struct {
	Name string
	Open func() (io.ReadCloser, error)
}

// FromPaths returns the files at the paths; "-" is stdin. A file that is named twice, under
// whatever names, is refused, for it would be counted twice. The error is an InputError.
//
// Opened again, a file is read as it is by then. Of a pipe and of stdin that is the content of the
// first time, which is kept.
func FromPaths(paths []string, stdin io.Reader) ([]Input, error) {
	var inputs []Input
	var problems InputError
	seen := map[string]os.FileInfo{}
	stdinSeen := false
	for _, path := range paths {
		if path == Stdin {
			if stdinSeen {
				problems.add(path, 0, "the standard input is named twice")
			}
			stdinSeen = true
			open := func() (io.ReadCloser, error) { return io.NopCloser(stdin), nil }
			inputs = append(inputs, Input{Name: "(standard input)", Open: kept(open)})
			continue
		}
		info, err := os.Stat(path)
		switch {
		case err != nil:
			problems.add(path, 0, "%s", reason(err))
			continue
		case info.IsDir():
			problems.add(path, 0, "is a directory, want a file")
			continue
		}
		for other, otherInfo := range seen {
			if os.SameFile(info, otherInfo) {
				problems.add(path, 0, "is the same file as %s: its sales would count twice", other)
			}
		}
		seen[path] = info
		open := func() (io.ReadCloser, error) { return os.Open(path) }
		if !info.Mode().IsRegular() {
			open = kept(open)
		}
		inputs = append(inputs, Input{Name: path, Open: open})
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return inputs, nil
}

// kept makes what can be read only once readable again: it keeps what was read. The first reader has
// to be done, and to have read to the end, before the next one opens it.
func kept(open func() (io.ReadCloser, error)) func() (io.ReadCloser, error) {
	var content bytes.Buffer
	opened := false
	return func() (io.ReadCloser, error) {
		if opened {
			return io.NopCloser(bytes.NewReader(content.Bytes())), nil
		}
		file, err := open()
		if err != nil {
			return nil, err
		}
		opened = true
		return struct {
			io.Reader
			io.Closer
		}{io.TeeReader(file, &content), file}, nil
	}
}

// FromFS returns the named files of a file system.
func FromFS(files fs.FS, names []string) []Input {
	inputs := make([]Input, len(names))
	for i, name := range names {
		inputs[i] = Input{Name: name, Open: func() (io.ReadCloser, error) { return files.Open(name) }}
	}
	return inputs
}

// load reads the whole input, at most limit bytes. A pipe may never end, so it does not wait
// longer than its context.
func (in Input) load(ctx context.Context, limit int64) ([]byte, error) {
	type result struct {
		content []byte
		err     error
	}
	done := make(chan result, 1)
	go func() {
		content, err := in.readAll(limit)
		done <- result{content, err}
	}()
	select {
	case r := <-done:
		return r.content, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (in Input) readAll(limit int64) ([]byte, error) {
	file, err := in.Open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("is larger than %d bytes", limit)
	}
	return bytes.TrimPrefix(content, []byte("\xef\xbb\xbf")), nil
}

// reason is what went wrong without the path, which the message has already.
func reason(err error) string {
	if pathErr, ok := err.(*fs.PathError); ok { //nolint:errorlint // the outermost error is meant
		return pathErr.Err.Error()
	}
	return err.Error()
}
