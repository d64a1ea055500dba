package proxy_test

import (
	"bufio"
	"bytes"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pglease/pglease/internal/torture/proxy"
)

// conversation is what a client sends: it starts, asks simply, prepares, and executes twice.
func conversation(tb testing.TB) []byte {
	tb.Helper()
	var sent []byte
	for _, m := range []pgproto3.FrontendMessage{
		&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "u"}},
		&pgproto3.Query{String: "begin isolation level read committed"},
		&pgproto3.Parse{Name: "s1", Query: "-- name: Release :one\nSELECT $1", ParameterOIDs: []uint32{25}},
		&pgproto3.Sync{},
		&pgproto3.Bind{PreparedStatement: "s1", Parameters: [][]byte{[]byte("x")}},
		&pgproto3.Execute{},
		&pgproto3.Bind{PreparedStatement: "s1", Parameters: [][]byte{nil}},
		&pgproto3.Execute{},
		&pgproto3.Sync{},
		&pgproto3.Terminate{},
	} {
		var err error
		if sent, err = m.Encode(sent); err != nil {
			tb.Fatal(err)
		}
	}
	return sent
}

func TestTheProxyKnowsWhatIsExecuted(t *testing.T) {
	t.Parallel()
	sent := conversation(t)
	names, passed, _ := proxy.ReadAll(bufio.NewReader(bytes.NewReader(sent)), nil)
	if want := []string{"begin", "Release", "Release"}; !slices.Equal(names, want) {
		t.Errorf("executed %q, want %q", names, want)
	}
	if !bytes.Equal(passed, sent) {
		t.Errorf("passed on %q, want %q", passed, sent)
	}
	_, changed, _ := proxy.ReadAll(bufio.NewReader(bytes.NewReader(sent)), func(sql string) string { return sql + " /* changed */" })
	if n := bytes.Count(changed, []byte("changed")); n != 2 {
		t.Errorf("%d statements were changed, want 2", n)
	}
}

// FuzzParser: whatever a client sends, nothing is passed on that it did not send, and nothing panics.
func FuzzParser(f *testing.F) {
	f.Add(conversation(f))
	f.Add([]byte{0, 0, 0, 8, 4, 210, 22, 46}) // a cancel request
	f.Add([]byte{0, 0, 0, 4, 'P', 0, 0, 0, 4})
	f.Add([]byte{0, 0, 0, 4, 'B', 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, sent []byte) {
		_, passed, _ := proxy.ReadAll(bufio.NewReader(bytes.NewReader(sent)), nil)
		if len(passed) > len(sent) {
			t.Errorf("passed on %d bytes of %d", len(passed), len(sent))
		}
	})
}
