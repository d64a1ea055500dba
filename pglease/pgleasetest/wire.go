package pgleasetest

import (
	"bytes"
	"encoding/binary"
)

// Types of frontend messages that say which statement is executed, or end a group.
const (
	msgBind     = 'B'
	msgClose    = 'C'
	msgDescribe = 'D'
	msgExecute  = 'E'
	msgFunction = 'F'
	msgParse    = 'P'
	msgQuery    = 'Q'
	msgSync     = 'S'
)

// msgReadyForQuery is the backend's last message in the answer to a group.
const msgReadyForQuery = 'Z'

// splitMessage cuts the first whole message off b; ok is false when more bytes are needed. The
// length counts itself and not the type. The message that starts a connection has no type.
func splitMessage(b []byte, typed bool) (message, rest []byte, ok bool) {
	header := 4
	if typed {
		header = 5
	}
	if len(b) < header {
		return nil, b, false
	}
	size := header - 4 + int(binary.BigEndian.Uint32(b[header-4:]))
	if size < header || len(b) < size {
		return nil, b, false
	}
	return b[:size:size], b[size:], true
}

// outbound reads what a client sends. The server answers each group with one ReadyForQuery: a
// simple query is a group, and so are the extended messages up to a Sync.
type outbound struct {
	started    bool              // past the message without a type
	partial    []byte            // of a message
	statements map[string]string // name of a prepared statement -> SQL
	portals    map[string]string // name of a portal -> SQL
}

func newOutbound() *outbound {
	return &outbound{statements: make(map[string]string), portals: make(map[string]string)}
}

// A step is what one message means.
type step struct {
	message []byte
	sql     string // of the statement that it executes
	runs    bool   // it executes one; the SQL may be empty
	hold    bool   // the group goes on: nothing happens at the server before more is sent
	answer  bool   // the server will answer with a ReadyForQuery
}

// add takes what was written, and returns what the messages that are whole by now mean.
func (o *outbound) add(b []byte) []step {
	o.partial = append(o.partial, b...)
	var steps []step
	for {
		message, rest, ok := splitMessage(o.partial, o.started)
		if !ok {
			o.partial = bytes.Clone(rest)
			return steps
		}
		o.partial = rest
		if !o.started {
			o.started = true
			steps = append(steps, step{message: message, answer: true})
			continue
		}
		steps = append(steps, o.read(message))
	}
}

func (o *outbound) read(message []byte) step {
	s := step{message: message}
	body := message[5:]
	switch message[0] {
	case msgParse:
		name, rest := cString(body)
		o.statements[name], _ = cString(rest)
		s.hold = true
	case msgBind:
		portal, rest := cString(body)
		name, _ := cString(rest)
		o.portals[portal] = o.statements[name]
		s.hold = true
	case msgClose:
		o.drop(body)
		s.hold = true
	case msgDescribe:
		s.hold = true
	case msgExecute:
		portal, _ := cString(body)
		s.sql, s.runs, s.hold = o.portals[portal], true, true
	case msgQuery:
		s.sql, _ = cString(body)
		s.runs, s.answer = true, true
	case msgSync, msgFunction:
		s.answer = true
	}
	return s
}

func (o *outbound) drop(body []byte) {
	if len(body) == 0 {
		return
	}
	name, _ := cString(body[1:])
	if body[0] == 'S' {
		delete(o.statements, name)
	} else {
		delete(o.portals, name)
	}
}

// cString cuts a text that a NUL ends off b.
func cString(b []byte) (text string, rest []byte) {
	before, after, _ := bytes.Cut(b, []byte{0})
	return string(before), after
}
