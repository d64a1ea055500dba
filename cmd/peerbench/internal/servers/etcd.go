package servers

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
)

func (s *Set) etcd(ctx context.Context) (Server, error) {
	bin, err := program("etcd", "etcd-server")
	if err != nil {
		return Server{}, err
	}
	about, err := version(ctx, bin, "--version")
	if err != nil {
		return Server{}, err
	}
	address, _, err := loopback()
	if err != nil {
		return Server{}, err
	}
	peer, _, err := loopback()
	if err != nil {
		return Server{}, err
	}
	c, err := s.beside(Etcd)
	if err != nil {
		return Server{}, err
	}
	err = c.Run(ctx, bin, "--name", "one", "--data-dir", filepath.Join(c.Dir(), "data"),
		"--listen-client-urls", "http://"+address, "--advertise-client-urls", "http://"+address,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer,
		"--initial-cluster", "one=http://"+peer, "--logger", "zap", "--log-level", "error")
	if err != nil {
		return Server{}, err
	}
	return Server{
		Kind: Etcd, Address: address,
		About: strings.ReplaceAll(about, " Version:", "") + ", one member, its defaults: the log is synced before it answers",
	}, await(ctx, c, address, healthy(ctx, address))
}

func healthy(ctx context.Context, address string) func(net.Conn) bool {
	return func(net.Conn) bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/health", http.NoBody)
		if err != nil {
			return false
		}
		reply, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		defer reply.Body.Close()
		return reply.StatusCode == http.StatusOK
	}
}
