package servers

import (
	"bytes"
	"context"
	"net"
	"strings"
)

func (s *Set) redis(ctx context.Context) (Server, error) {
	bin, err := program("redis-server", "redis-server")
	if err != nil {
		return Server{}, err
	}
	about, err := version(ctx, bin, "--version")
	if err != nil {
		return Server{}, err
	}
	address, port, err := loopback()
	if err != nil {
		return Server{}, err
	}
	c, err := s.beside(Redis)
	if err != nil {
		return Server{}, err
	}
	if err := c.Run(ctx, bin, "--bind", "127.0.0.1", "--port", port, "--dir", c.Dir()); err != nil {
		return Server{}, err
	}
	_, about, _ = strings.Cut(about, "v=")
	about, _, _ = strings.Cut(about, " ")
	return Server{
		Kind: Redis, Address: address,
		About: "Redis " + about + ", one, its defaults: no log; a snapshot now and then, so a crash loses minutes",
	}, await(ctx, c, address, pong)
}

func pong(conn net.Conn) bool {
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	reply := make([]byte, 16)
	n, err := conn.Read(reply)
	return err == nil && bytes.HasPrefix(reply[:n], []byte("+PONG"))
}
