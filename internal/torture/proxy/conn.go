package proxy

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// A conn is one connection of a client and the one to the server that belongs to it.
type conn struct {
	link           *Link
	client, server net.Conn
	parser         *parser

	mu      sync.Mutex
	pending []due // for each answer to come
}

// due is what befalls an answer.
type due struct {
	rule *Rule                 // that loses it, or nil
	row  func(values [][]byte) // who is told of its rows, or nil
}

func newConn(l *Link, client, server net.Conn) *conn {
	return &conn{link: l, client: client, server: server, parser: newParser(l.rewrite)}
}

// run serves the connection to its end.
func (c *conn) run() {
	var answers sync.WaitGroup
	answers.Go(c.backward)
	c.forward()
	answers.Wait()
	c.end()
}

// end closes both sides.
func (c *conn) end() {
	_ = c.client.Close()
	_ = c.server.Close()
}

// forward carries from the client to the server, whole groups at once. When the client has closed,
// what it sent before still arrives, and the server learns of the end after that.
func (c *conn) forward() {
	reader := bufio.NewReader(c.client)
	for {
		message, err := readMessage(reader, c.parser.started)
		if err != nil {
			c.hangUp()
			return
		}
		g, whole, err := c.parser.add(message)
		if err != nil {
			c.end()
			return
		}
		if whole && !c.send(g) {
			c.end()
			return
		}
	}
}

func (c *conn) hangUp() {
	if half, ok := c.server.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		_ = c.server.Close()
	}
}

// send applies what befalls the group and sends it; false says that the connection is to break.
func (c *conn) send(g group) bool {
	if !c.link.pass() {
		return false
	}
	rule, statement := c.link.take(g)
	if rule != nil {
		switch rule.Kind {
		case LoseRequest:
			rule.Struck(describe(g, ""))
			return false
		case Delay:
			rule.Struck(describe(g, rule.Wait.Round(time.Millisecond).String()))
			if !c.link.sleep(rule.Wait) {
				return false
			}
		case Copy:
			rule.Copied(statement)
		}
		if rule.Kind != LoseReply {
			rule = nil
		}
	}
	if g.answered {
		c.mu.Lock()
		c.pending = append(c.pending, due{rule, c.link.reader(g)})
		c.mu.Unlock()
	}
	_, err := c.server.Write(g.bytes)
	return err == nil
}

func describe(g group, more string) string {
	text := strings.Join(g.names(), ", ")
	if more != "" {
		text += ": " + more
	}
	return text
}

// backward carries from the server to the client.
func (c *conn) backward() {
	reader := bufio.NewReaderSize(c.server, 32<<10)
	var out []byte
	failed := false // whether the answer under way holds an error
	gone := false   // whether the client is
	for {
		message, err := readMessage(reader, true)
		if err != nil {
			if len(out) > 0 && !gone {
				_, _ = c.client.Write(out)
			}
			c.end()
			return
		}
		failed = failed || message[0] == msgError
		ready := message[0] == msgReady
		due := c.answer(ready)
		if message[0] == msgRow && due.row != nil {
			due.read(message)
		}
		if due.rule != nil {
			if ready {
				due.rule.Struck(fmt.Sprintf("transaction %q after it, failed: %t", message[5:], failed))
				c.end()
				return
			}
			continue
		}
		failed = failed && !ready
		out = append(out, message...)
		if reader.Buffered() > 0 && !ready {
			continue
		}
		if !c.link.pass() {
			c.end()
			return
		}
		if !gone {
			_, err := c.client.Write(out)
			gone = err != nil
		}
		out = out[:0]
	}
}

// answer returns what befalls the answer under way, and counts it off at its end.
func (c *conn) answer(ready bool) due {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 {
		return due{}
	}
	next := c.pending[0]
	if ready {
		c.pending = c.pending[1:]
	}
	return next
}

func (d due) read(message []byte) {
	var row pgproto3.DataRow
	if row.Decode(message[5:]) == nil {
		d.row(row.Values)
	}
}
