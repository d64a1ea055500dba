package postgres_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/postgres"
)

func start(t *testing.T, opts postgres.Options) *postgres.Server {
	t.Helper()
	s, err := postgres.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func setting(t *testing.T, conn *pgx.Conn, name string) string {
	t.Helper()
	var value string
	if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestStartAndStop(t *testing.T) {
	t.Parallel()
	s := start(t, postgres.Options{})
	if !strings.HasPrefix(s.Source(), "PostgreSQL ") || !strings.Contains(s.Source(), " started from "+s.BinDir()) {
		t.Errorf("source %q", s.Source())
	}
	if !s.Started() || s.PID() == 0 {
		t.Errorf("started %v, process %d", s.Started(), s.PID())
	}
	conn := connect(t, s.URL())
	if got := setting(t, conn, "data_directory"); got != s.DataDir() {
		t.Errorf("the data is in %s, want %s", got, s.DataDir())
	}
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if got := setting(t, conn, name); got != "off" {
			t.Errorf("%s is %s", name, got)
		}
	}

	pid := s.PID()
	for range 2 { // the second is harmless
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if postgres.Alive(pid) || s.PID() != 0 {
		t.Errorf("process %d is alive after Stop", pid)
	}
	if _, err := os.Stat(filepath.Dir(s.DataDir())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is there after Stop: %v", err)
	}
	if err := s.Restart(t.Context()); err == nil {
		t.Error("Restart after Stop gave no error")
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	s := start(t, postgres.Options{
		Durable:        true,
		MaxConnections: 17,
		Settings:       map[string]string{"work_mem": "7MB", "full_page_writes": "off"},
	})
	conn := connect(t, s.URL())
	for name, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "max_connections": "17", "work_mem": "7MB",
		"full_page_writes": "off", // settings win
	} {
		if got := setting(t, conn, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	for _, opts := range []postgres.Options{{MaxConnections: -1}, {Version: "15.3"}, {Version: "9"}} {
		if _, err := postgres.Start(t.Context(), opts); err == nil {
			t.Errorf("%+v was accepted", opts)
		}
	}
}

func TestPasswordIsNeeded(t *testing.T) {
	t.Parallel()
	s := start(t, postgres.Options{})
	cfg, err := pgx.ParseConfig(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Password += "x"
	if _, err := pgx.ConnectConfig(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "28P01") {
		t.Errorf("login with a wrong password: %v", err)
	}
	info, err := os.Stat(filepath.Dir(s.DataDir()))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's directory has mode %v", info.Mode())
	}
}

func TestFreshHasItsOwnIdentity(t *testing.T) {
	t.Parallel()
	identity := func(s *postgres.Server) (id string) {
		conn := connect(t, s.URL())
		if err := conn.QueryRow(t.Context(), "SELECT system_identifier::text FROM pg_control_system()").Scan(&id); err != nil {
			t.Fatal(err)
		}
		return id
	}
	copied, fresh := start(t, postgres.Options{}), start(t, postgres.Options{Fresh: true})
	if identity(copied) == identity(fresh) {
		t.Error("a fresh server has the system identifier of a copied one")
	}
}

func TestKillLosesNothingDurable(t *testing.T) {
	t.Parallel()
	s := start(t, postgres.Options{Durable: true})
	conn := connect(t, s.URL())
	if _, err := conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS n"); err != nil {
		t.Fatal(err)
	}
	pid := s.PID()
	all := append(postgres.Children(pid), pid)
	if len(all) < 3 {
		t.Fatalf("processes of the server: %v", all)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range all {
		if postgres.Alive(pid) {
			t.Errorf("process %d is alive after Kill", pid)
		}
	}
	if err := s.Kill(); err != nil { // again
		t.Error(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := connect(t, s.URL()).QueryRow(t.Context(), "SELECT n FROM kept").Scan(&n); err != nil || n != 42 {
		t.Errorf("read %d, %v", n, err)
	}
}

func TestRestartKeepsDataAndPort(t *testing.T) {
	t.Parallel()
	s := start(t, postgres.Options{})
	conn := connect(t, s.URL())
	if _, err := conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS n"); err != nil {
		t.Fatal(err)
	}
	before := s.PID()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.PID() == before {
		t.Error("the same process after Restart")
	}
	if _, err := connect(t, s.URL()).Exec(t.Context(), "SELECT n FROM kept"); err != nil {
		t.Error(err)
	}
}

func TestGivenServerIsLeftAlone(t *testing.T) {
	t.Parallel()
	own := start(t, postgres.Options{})
	given, err := postgres.FindOrStart(t.Context(), postgres.Options{URL: own.URL()})
	if err != nil {
		t.Fatal(err)
	}
	if given.URL() != own.URL() || given.Started() || given.PID() != 0 || given.DataDir() != "" {
		t.Errorf("%+v", given)
	}
	if !strings.HasSuffix(given.Source(), ", as given") || strings.Contains(given.Source(), "postgres:") {
		t.Errorf("source %q", given.Source())
	}
	if err := given.Stop(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(given.Kill(), given.Restart(t.Context())); err == nil {
		t.Error("Kill and Restart of a given server gave no error")
	}
	connect(t, own.URL())
}

func TestGivenServerMustAnswer(t *testing.T) {
	t.Parallel()
	port, err := postgres.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	url := "postgres://nobody@127.0.0.1/x?port=" + strconv.Itoa(port)
	if s, err := postgres.FindOrStart(t.Context(), postgres.Options{URL: url}); err == nil {
		t.Errorf("took %s", s.Source())
	}
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := postgres.Start(ctx, postgres.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
