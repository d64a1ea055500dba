package pgleasetest

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// said is what a client sends that prepares a statement and runs it, and then a plain one.
func said(f *testing.F) []byte {
	f.Helper()
	var b []byte
	for _, m := range []pgproto3.FrontendMessage{
		&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "u"}},
		&pgproto3.Parse{Name: "s", Query: "SELECT $1"}, &pgproto3.Describe{ObjectType: 'S', Name: "s"}, &pgproto3.Sync{},
		&pgproto3.Bind{DestinationPortal: "p", PreparedStatement: "s", Parameters: [][]byte{{'1'}}},
		&pgproto3.Execute{Portal: "p"}, &pgproto3.Close{ObjectType: 'P', Name: "p"}, &pgproto3.Sync{},
		&pgproto3.Query{String: "COMMIT"}, &pgproto3.Terminate{},
	} {
		var err error
		if b, err = m.Encode(b); err != nil {
			f.Fatal(err)
		}
	}
	return b
}

// FuzzOutbound has the reader of what clients send read anything. It passes on every byte that it was
// given, in order and in whole messages, and however the bytes were cut up on their way it understands
// the same.
func FuzzOutbound(f *testing.F) {
	f.Add(said(f), uint8(0))
	f.Add(said(f), uint8(7))
	f.Add([]byte{0, 0, 0, 4, 'C', 0, 0, 0, 4}, uint8(1))
	f.Add([]byte{0, 0, 0, 3}, uint8(0))
	f.Add([]byte{0, 0, 0, 4, 'Q', 0xff, 0xff, 0xff, 0xff, 'x'}, uint8(3))
	f.Fuzz(func(t *testing.T, sent []byte, cut uint8) {
		whole := newOutbound()
		steps := whole.add(sent)
		var passed []byte
		for i, s := range steps {
			wantWholeMessage(t, s.message, i > 0)
			passed = append(passed, s.message...)
		}
		if passed = append(passed, whole.partial...); !bytes.Equal(passed, sent) {
			t.Fatalf("%x was passed on as %x", sent, passed)
		}

		var again []step
		for pieces, rest := newOutbound(), sent; len(rest) > 0; {
			n := min(int(cut)+1, len(rest))
			again = append(again, pieces.add(rest[:n])...)
			rest = rest[n:]
		}
		if len(again) != len(steps) {
			t.Fatalf("%d messages at once, %d in pieces of %d bytes", len(steps), len(again), int(cut)+1)
		}
		for i, s := range steps {
			a := again[i]
			if !bytes.Equal(a.message, s.message) || a.sql != s.sql || a.runs != s.runs || a.hold != s.hold || a.answer != s.answer {
				t.Fatalf("%+v at once, %+v in pieces", s, a)
			}
		}
	})
}

func wantWholeMessage(t *testing.T, message []byte, typed bool) {
	t.Helper()
	if typed {
		message = message[1:]
	}
	if len(message) < 4 || int(binary.BigEndian.Uint32(message)) != len(message) {
		t.Fatalf("%x is no message", message)
	}
}
