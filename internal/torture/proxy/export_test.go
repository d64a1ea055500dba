package proxy

import "bufio"

// ReadAll parses what a client sends, and returns the names of what it executes.
func ReadAll(r *bufio.Reader, rewrite func(string) string) (names []string, sent []byte, err error) {
	p := newParser(rewrite)
	for {
		message, err := readMessage(r, p.started)
		if err != nil {
			return names, sent, err
		}
		g, whole, err := p.add(message)
		if err != nil {
			return names, sent, err
		}
		if whole {
			names, sent = append(names, g.names()...), append(sent, g.bytes...)
		}
	}
}
