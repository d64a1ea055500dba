package worker_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pglease/pglease/internal/torture/history"
	"github.com/pglease/pglease/internal/torture/worker"
)

// TestAnUnreachedAuthorityIsNoTrouble: a process that meets a database which is down, for as long as it
// tries, ends well with an empty history.
func TestAnUnreachedAuthorityIsNoTrouble(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	const nobody = "postgres://nobody@127.0.0.1:1/none?sslmode=disable"
	order, err := json.Marshal(worker.Order{Name: "w", Authority: nobody, Resource: nobody, History: path, TTL: time.Second, Sessions: 1, Patience: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	if code := worker.Main(strings.NewReader(string(order)), &said); code != 0 {
		t.Errorf("exit code %d: %s", code, said.String())
	}
	if calls, err := history.ReadCalls(path); err != nil || len(calls) > 0 {
		t.Errorf("calls %v: %v", calls, err)
	}
}
