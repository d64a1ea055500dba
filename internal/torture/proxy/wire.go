package proxy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Types of messages that mean something here.
const (
	msgParse    = 'P'
	msgBind     = 'B'
	msgExecute  = 'E'
	msgQuery    = 'Q'
	msgSync     = 'S'
	msgPassword = 'p'
	msgFlush    = 'H'
	msgEnd      = 'X'

	msgReady = 'Z' // the server's last message of an answer
	msgError = 'E'
	msgRow   = 'D'
)

// maxMessage bounds what is kept in memory for one message.
const maxMessage = 64 << 20

var errMessage = errors.New("not a message of the protocol")

// readMessage reads one message, its header included. The first of a connection has no type.
func readMessage(r *bufio.Reader, typed bool) ([]byte, error) {
	header := 4
	if typed {
		header = 5
	}
	head, err := r.Peek(header)
	if err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[header-4:])
	if length < 4 || length > maxMessage {
		return nil, fmt.Errorf("%w: length %d", errMessage, length)
	}
	message := make([]byte, header-4+int(length))
	_, err = io.ReadFull(r, message)
	return message, err
}

// A Statement is one execution, as it was sent to the server.
type Statement struct {
	SQL     string
	Types   []uint32
	Values  [][]byte
	Formats []int16
}

var named = regexp.MustCompile(`^-- name: (\w+) `)

// Name is what the query is called in queries/, and of other SQL the first word in lower case.
func (s Statement) Name() string {
	if m := named.FindStringSubmatch(s.SQL); m != nil {
		return m[1]
	}
	word, _, _ := strings.Cut(strings.TrimSpace(s.SQL), " ")
	return strings.ToLower(word)
}

// A group is what the server answers with one word that it is ready: a simple query, or extended
// messages up to a Sync.
type group struct {
	bytes      []byte
	statements []Statement
	answered   bool
}

// names are those of what the group executes.
func (g group) names() []string {
	names := make([]string, len(g.statements))
	for i, s := range g.statements {
		names[i] = s.Name()
	}
	return names
}

// A parser reads what one client sends.
type parser struct {
	rewrite  func(sql string) string // puts a planted bug in; nil for none
	started  bool
	prepared map[string]pgproto3.Parse
	portals  map[string]Statement
	group    group
}

func newParser(rewrite func(string) string) *parser {
	return &parser{rewrite: rewrite, prepared: map[string]pgproto3.Parse{}, portals: map[string]Statement{}}
}

// add takes a whole message, and returns the group that it completes.
func (p *parser) add(message []byte) (done group, ok bool, err error) {
	if !p.started {
		p.started = true
		return group{bytes: message, answered: true}, true, nil
	}
	body := message[5:]
	switch message[0] {
	case msgParse:
		message, err = p.parse(body, message)
	case msgBind:
		err = p.bind(body)
	case msgExecute:
		var m pgproto3.Execute
		if err = m.Decode(body); err == nil {
			p.group.statements = append(p.group.statements, p.portals[m.Portal])
		}
	case msgQuery:
		message, err = p.query(body)
		p.group.answered = true
	case msgSync:
		p.group.answered = true
	}
	if err != nil {
		return group{}, false, fmt.Errorf("%w: %w", errMessage, err)
	}
	p.group.bytes = append(p.group.bytes, message...)
	switch message[0] {
	case msgQuery, msgSync, msgPassword, msgFlush, msgEnd:
		done, p.group = p.group, group{}
		return done, true, nil
	}
	return group{}, false, nil
}

func (p *parser) parse(body, message []byte) ([]byte, error) {
	var m pgproto3.Parse
	if err := m.Decode(body); err != nil {
		return nil, err
	}
	if p.rewrite != nil {
		if sql := p.rewrite(m.Query); sql != m.Query {
			m.Query = sql
			var err error
			if message, err = m.Encode(nil); err != nil {
				return nil, err
			}
		}
	}
	p.prepared[m.Name] = m
	return message, nil
}

func (p *parser) bind(body []byte) error {
	var m pgproto3.Bind
	if err := m.Decode(body); err != nil {
		return err
	}
	from := p.prepared[m.PreparedStatement]
	p.portals[m.DestinationPortal] = Statement{
		SQL: from.Query, Types: from.ParameterOIDs, Values: m.Parameters, Formats: m.ParameterFormatCodes,
	}
	return nil
}

func (p *parser) query(body []byte) ([]byte, error) {
	var m pgproto3.Query
	if err := m.Decode(body); err != nil {
		return nil, err
	}
	if p.rewrite != nil {
		m.String = p.rewrite(m.String)
	}
	p.group.statements = append(p.group.statements, Statement{SQL: m.String})
	return m.Encode(nil)
}
