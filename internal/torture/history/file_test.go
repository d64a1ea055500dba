package history_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/pglease/pglease/internal/torture/history"
)

var began = time.Date(2026, 7, 1, 9, 0, 0, 0, time.UTC)

// A process that was killed has left a call without an answer, and perhaps part of a line.
func TestCallsOfAProcessThatWasKilled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "w1.jsonl")
	w, err := history.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	answered := history.Call{Name: "w1#1", Call: history.TryAcquire, Outcome: history.OK, Invoked: began, Returned: began.Add(time.Second)}
	open := history.Call{Name: "w1#2", Call: history.Release, Invoked: began.Add(2 * time.Second)}
	for _, line := range []history.Line{
		{Phase: history.Invoke, Call: history.Call{Name: "w1#1", Call: history.TryAcquire, Invoked: began}},
		{Phase: history.Return, Call: answered},
		{Phase: history.Invoke, Call: open},
	} {
		if err := w.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"phase":"ret`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	calls, err := history.ReadCalls(path)
	if err != nil {
		t.Fatal(err)
	}
	open.Outcome = history.Unknown
	if want := []history.Call{answered, open}; !reflect.DeepEqual(calls, want) {
		t.Errorf("read %+v\nwant %+v", calls, want)
	}
}

func TestAHistoryIsReadAsItWasSaved(t *testing.T) {
	t.Parallel()
	saved := &history.History{
		Began:   began,
		Calls:   []history.Call{{Name: "w1#1", Call: history.Acquire, Outcome: history.Unknown, Invoked: began}},
		Tenures: []history.Tenure{{Resource: "r", Fence: 1, Lease: "A", Acquired: began, Expires: began.Add(time.Second)}},
		Changes: []history.Change{{Number: 1, Resource: "r", Fence: 1, Lease: "A", At: began}},
		Writes:  []history.Write{{Store: history.Files, Resource: "r", Number: 1, Key: "k", Fence: 1, At: began}},
		Faults:  []history.Fault{{Kind: "process_killed", From: began, To: began}},
		Waits:   []history.Wait{{Process: "w1", Ended: history.Roused, At: began}},
		Losses:  []history.Loss{{From: began, To: began}},
		Steps:   []history.Step{{At: began, Days: -1}},
	}
	path := filepath.Join(t.TempDir(), "history.jsonl")
	if err := saved.Save(path); err != nil {
		t.Fatal(err)
	}
	read, err := history.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read, saved) {
		t.Errorf("read %+v\nwant %+v", read, saved)
	}
}

// The scheduler sets the database's clock by whole days, so a time tells by how many it was off.
func TestTrueTime(t *testing.T) {
	t.Parallel()
	h := &history.History{Began: began}
	for _, days := range []int{-2, 0, 1} {
		for _, since := range []time.Duration{0, time.Second, 5 * time.Hour} {
			shown := began.Add(since + time.Duration(days)*24*time.Hour)
			if h.Days(shown) != days || !h.True(shown).Equal(began.Add(since)) {
				t.Errorf("%v: %d days, true %v", shown, h.Days(shown), h.True(shown))
			}
		}
	}
}
