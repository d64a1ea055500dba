//go:build linux

package patroni

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pglease/pglease/internal/postgres"
)

// A Member is a Patroni and its Postgres.
type Member struct {
	Name string
	URL  string // of its Postgres alone, whatever its role

	at        string // host and port of its Postgres
	api       string // host and port of Patroni's own
	cluster   *Cluster
	companion *postgres.Companion
	config    string
}

func (c *Cluster) newMember(tb testing.TB, beside *postgres.Server, name, host string) *Member {
	tb.Helper()
	companion, err := beside.Accompany("patroni-" + name)
	if err != nil {
		tb.Fatal(err)
	}
	m := &Member{Name: name, at: address(tb, host), api: address(tb, host), cluster: c, companion: companion}
	m.URL = c.url(m.at)
	text, err := json.MarshalIndent(m.settings(filepath.Dir(beside.DataDir())), "", "  ")
	if err != nil {
		tb.Fatal(err)
	}
	if m.config, err = companion.WriteFile("patroni.yml", string(text)); err != nil { // JSON is YAML
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		m.Kill(tb)
		showLog(tb, "member "+m.Name, m.companion)
	})
	return m
}

type object = map[string]any

// settings are the member's. Sockets lie in a directory whose path is short enough for them.
func (m *Member) settings(sockets string) object {
	c := m.cluster
	login := object{"username": "postgres", "password": c.password}
	return object{
		"scope": "pglease", "name": m.Name,
		"etcd3":   object{"hosts": []string{c.etcdAt}},
		"restapi": object{"listen": m.api, "connect_address": m.api},
		"bootstrap": object{
			"initdb": []any{"no-sync", object{"encoding": "UTF8"}, object{"locale": "C"}, object{"auth-local": "trust"}, object{"auth-host": "scram-sha-256"}},
			"dcs": object{
				"ttl": ttl, "loop_wait": loopWait, "retry_timeout": retryTimeout,
				// The test decides what is lost: a standby that is behind is promoted all the same.
				"maximum_lag_on_failover": 1 << 30,
				"synchronous_mode":        c.Synchronous,
				"postgresql":              object{"use_pg_rewind": true},
			},
		},
		"postgresql": object{
			"listen": m.at, "connect_address": m.at,
			"data_dir": m.dataDir(), "bin_dir": c.programs.postgres, "pgpass": filepath.Join(m.companion.Dir(), "pgpass"),
			"authentication": object{"superuser": login, "replication": login, "rewind": login},
			"pg_hba":         []string{"local all all trust", "host all all 127.0.0.0/8 scram-sha-256", "host replication all 127.0.0.0/8 scram-sha-256"},
			"parameters":     object{"unix_socket_directories": sockets, "shared_buffers": "16MB"},
			"remove_data_directory_on_rewind_failure":     true,
			"remove_data_directory_on_diverged_timelines": true,
		},
	}
}

func (m *Member) dataDir() string { return filepath.Join(m.companion.Dir(), "data") }

// Start runs Patroni, which runs Postgres.
func (m *Member) Start(tb testing.TB) {
	tb.Helper()
	if err := m.companion.Run(tb.Context(), m.cluster.programs.patroni, m.config); err != nil {
		tb.Fatal(err)
	}
}

// Kill ends both as a crash does: Patroni first, which would start the other one again.
func (m *Member) Kill(tb testing.TB) {
	tb.Helper()
	if err := m.companion.Kill(); err != nil {
		tb.Error(err)
	}
	pid := m.postmaster()
	if pid < 2 { // 0 would be our own process group
		return
	}
	_ = syscall.Kill(pid, syscall.SIGSTOP) // so that no new backend appears
	backends, _ := exec.CommandContext(context.WithoutCancel(tb.Context()), "pgrep", "-P", strconv.Itoa(pid)).Output()
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for _, text := range strings.Fields(string(backends)) {
		if backend, err := strconv.Atoi(text); err == nil && backend > 1 {
			_ = syscall.Kill(backend, syscall.SIGKILL)
		}
	}
	await(tb, "the server of "+m.Name+" is gone", func() bool { return !runs(pid) })
}

// postmaster is the process of the server that runs on the member's data, or 0.
func (m *Member) postmaster() int {
	b, err := os.ReadFile(filepath.Join(m.dataDir(), "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || !runs(pid) || !strings.Contains(commandLine(pid), m.dataDir()) {
		return 0
	}
	return pid
}

// runs tells whether a process is there and no zombie, which nobody may wait for.
func runs(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	_, state, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(state, "Z")
}

func commandLine(pid int) string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return string(b)
}
