package postgres

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range that systems give to outgoing connections: one of those may
// take any port of that range while the server is down for a restart.
const (
	lowestPort  = 10240
	highestPort = 32767
)

// freePort returns a loopback port that nobody listens on. Another may take it before we do.
func freePort() (int, error) {
	var last error
	for range 100 {
		port := lowestPort + rand.N(highestPort-lowestPort+1)
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		if err := l.Close(); err != nil {
			return 0, err
		}
		return port, nil
	}
	return 0, fmt.Errorf("no free port between %d and %d: %w", lowestPort, highestPort, last)
}
