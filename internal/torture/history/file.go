package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
)

// A Writer appends lines of JSON to a file, each by one write, so that a process which is killed
// leaves whole lines. It is safe for concurrent use.
type Writer struct {
	mu   sync.Mutex
	file *os.File
}

// Create opens a new file.
func Create(path string) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644) //nolint:gosec // a report for people
	if err != nil {
		return nil, err
	}
	return &Writer{file: f}, nil
}

// Write appends one line.
func (w *Writer) Write(line any) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.file.Write(append(text, '\n'))
	return err
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }

// A Phase is which part of a call a line tells of.
type Phase string

const (
	Invoke Phase = "invoke"
	Return Phase = "return"
)

// A Line is what a process writes of a call: one line before it and one after it.
type Line struct {
	Phase Phase `json:"phase"`
	Call
}

// ReadCalls reads the lines of one process. A call without a second line has an unknown outcome. A
// last line that was cut short is left out.
func ReadCalls(path string) ([]Call, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // the process died before its first line
	}
	if err != nil {
		return nil, err
	}
	var calls []Call
	at := map[string]int{}
	lines := bytes.SplitAfter(text, []byte("\n"))
	for i, text := range lines {
		if len(text) == 0 || (i == len(lines)-1 && text[len(text)-1] != '\n') {
			continue
		}
		var line Line
		if err := json.Unmarshal(text, &line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		switch n, known := at[line.Name]; {
		case line.Phase == Invoke && !known:
			at[line.Name] = len(calls)
			line.Outcome = Unknown
			calls = append(calls, line.Call)
		case line.Phase == Return && known && calls[n].Returned.IsZero():
			calls[n] = line.Call
		default:
			return nil, fmt.Errorf("%s:%d: a %s of %s that does not fit", path, i+1, line.Phase, line.Name)
		}
	}
	return calls, nil
}

// Save writes the records of the database and of the scheduler beside the lines of the processes.
func (h *History) Save(path string) error {
	w, err := Create(path)
	if err != nil {
		return err
	}
	write := func(kind string, record any) {
		err = errors.Join(err, w.Write(struct {
			Kind   string `json:"kind"`
			Record any    `json:"record"`
		}{kind, record}))
	}
	write("began", h.Began)
	records(write, "call", h.Calls)
	records(write, "tenure", h.Tenures)
	records(write, "change", h.Changes)
	records(write, "write", h.Writes)
	records(write, "fault", h.Faults)
	records(write, "wait", h.Waits)
	records(write, "loss", h.Losses)
	records(write, "step", h.Steps)
	return errors.Join(err, w.Close())
}

func records[T any](write func(string, any), kind string, list []T) {
	for _, record := range list {
		write(kind, record)
	}
}

// Load reads what Save wrote.
func Load(path string) (*History, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	h := new(History)
	for i, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		if err := h.add(line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
	}
	return h, nil
}

func (h *History) add(line []byte) error {
	var envelope struct {
		Kind   string
		Record json.RawMessage
	}
	if err := json.Unmarshal(line, &envelope); err != nil {
		return err
	}
	switch envelope.Kind {
	case "began":
		return json.Unmarshal(envelope.Record, &h.Began)
	case "call":
		return appendTo(&h.Calls, envelope.Record)
	case "tenure":
		return appendTo(&h.Tenures, envelope.Record)
	case "change":
		return appendTo(&h.Changes, envelope.Record)
	case "write":
		return appendTo(&h.Writes, envelope.Record)
	case "fault":
		return appendTo(&h.Faults, envelope.Record)
	case "wait":
		return appendTo(&h.Waits, envelope.Record)
	case "loss":
		return appendTo(&h.Losses, envelope.Record)
	case "step":
		return appendTo(&h.Steps, envelope.Record)
	}
	return fmt.Errorf("unknown kind %q", envelope.Kind)
}

func appendTo[T any](list *[]T, text []byte) error {
	var record T
	if err := json.Unmarshal(text, &record); err != nil {
		return err
	}
	*list = append(*list, record)
	return nil
}
