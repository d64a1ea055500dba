//go:build linux

// Package patroni runs a pair of Postgres servers that Patroni manages, with an etcd, for tests: real
// members, real elections. It takes the Debian packages patroni and etcd-server, and the server of the
// machine itself.
package patroni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/internal/torture/failover/servers"
)

// patience bounds each wait for Patroni, also on a slow machine.
const patience = 2 * time.Minute

// What the members are told of time, in seconds. A leader that died is missed after the TTL. The sum of
// the loop's wait and twice the retry timeout has to stay within it.
const (
	ttl          = 10
	loopWait     = 1
	retryTimeout = 4
)

// A Cluster is an etcd and two members. They listen on loopback addresses of their own.
type Cluster struct {
	URL         string // names both members, and leads to whichever takes writes
	Members     []*Member
	Synchronous bool

	programs programs
	etcd     *postgres.Companion
	etcdAt   string
	password string
}

// programs are what a cluster is made of.
type programs struct{ etcd, patroni, postgres string }

// find looks for them, and says what is missing.
func find() (found programs, err error) {
	var errs []error
	if found.patroni, err = exec.LookPath("patroni"); err != nil {
		errs = append(errs, errors.New("no patroni found"))
	}
	if found.etcd, err = exec.LookPath("etcd"); err != nil {
		errs = append(errs, errors.New("no etcd found"))
	}
	if len(errs) > 0 {
		errs = append(errs, errors.New("on Debian: apt-get install patroni etcd-server"))
	}
	server, err := servers.FindInstalled() // Patroni copies and rewinds by programs that other builds lack
	if err != nil {
		errs = append(errs, err)
	}
	found.postgres = server.Dir
	return found, oneLine(errs)
}

func oneLine(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errors.New(strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "; "))
}

// Start runs a cluster beside a server that was started, in directories below that one's own, until the
// end of the test. It returns when one member leads and the other one follows.
func Start(tb testing.TB, beside *postgres.Server, synchronous bool) *Cluster {
	tb.Helper()
	found, err := find()
	if err != nil {
		servers.Needs(tb, err)
	}
	c := &Cluster{Synchronous: synchronous, programs: found, password: strconv.FormatUint(rand.Uint64(), 36)}
	network := fmt.Sprintf("127.%d.%d.", 1+rand.N(254), rand.N(256)) // nobody else's ports are here
	c.startEtcd(tb, beside, network+"1")
	// Patroni ends with us, by the kernel's hand. The servers that it has started are no children of ours.
	servers.Guard(tb, filepath.Dir(beside.DataDir()), `pkill -KILL -f -- "-D $PLACE/"`)
	var hosts []string
	for i, name := range []string{"a", "b"} {
		m := c.newMember(tb, beside, name, network+strconv.Itoa(2+i))
		c.Members = append(c.Members, m)
		hosts = append(hosts, m.at)
		m.Start(tb)
	}
	c.URL = c.url(strings.Join(hosts, ",")) + "&target_session_attrs=read-write&connect_timeout=2"
	c.AwaitPair(tb)
	return c
}

func (c *Cluster) url(hosts string) string {
	return fmt.Sprintf("postgres://postgres:%s@%s/postgres?sslmode=disable", c.password, hosts)
}

// startEtcd runs it, and returns when it is well.
func (c *Cluster) startEtcd(tb testing.TB, beside *postgres.Server, host string) {
	tb.Helper()
	companion, err := beside.Accompany("etcd")
	if err != nil {
		tb.Fatal(err)
	}
	c.etcd, c.etcdAt = companion, address(tb, host)
	clients, peers := "http://"+c.etcdAt, "http://"+address(tb, host)
	err = companion.Run(tb.Context(), c.programs.etcd, "--data-dir", filepath.Join(companion.Dir(), "data"),
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := companion.Kill(); err != nil {
			tb.Error(err)
		}
		showLog(tb, "etcd", companion)
	})
	var state struct{ Health string }
	await(tb, "etcd is up", func() bool {
		return get(tb, clients+"/health", &state) == nil && state.Health == "true"
	})
}

// address is a free port of the host.
func address(tb testing.TB, host string) string {
	tb.Helper()
	port, err := postgres.FreePort()
	if err != nil {
		tb.Fatal(err)
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// showLog prints what a program wrote, where the test failed.
func showLog(tb testing.TB, name string, c *postgres.Companion) {
	tb.Helper()
	if tb.Failed() {
		text := c.Log()
		tb.Logf("the end of the log of %s:\n%s", name, text[max(0, len(text)-8000):])
	}
}

// await returns when something is so.
func await(tb testing.TB, what string, so func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), patience) // also while cleaning up
	defer cancel()
	for !so() {
		select {
		case <-ctx.Done():
			tb.Fatalf("not within %v: %s", patience, what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// get asks a server for JSON.
func get(tb testing.TB, url string, answer any) error {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
