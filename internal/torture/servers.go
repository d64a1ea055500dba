//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/internal/torture/history"
	"github.com/pglease/pglease/internal/torture/proxy"
	"github.com/pglease/pglease/migrations"
)

// Servers are the two databases: the authority, with a standby that follows it asynchronously and a
// clock that can be set, and the one that holds protected resources.
type Servers struct {
	database  string // on both of them
	lent      bool   // the servers are another's, and the database ours
	authority proxy.Target
	resource  proxy.Target
	clockLib  string // libfaketime; empty where there is none

	resources *postgres.Server

	mu       sync.Mutex // held by whoever changes the authority
	primary  *postgres.Server
	standby  *postgres.Server
	failed   int // to make a standby, so often in a row
	days     int // the authority's clock is off by so many
	greatest int // the most that it was off by
	snapshot string
	taken    time.Time // nothing that was committed later is in the snapshot
	losses   []history.Loss
	steps    []history.Step
}

// serverOptions are durable: a test that kills a server which is not proves nothing.
func (s *Servers) options() postgres.Options {
	o := postgres.Options{Durable: true, MaxConnections: 300, Settings: map[string]string{
		"max_wal_size": "128MB", "wal_keep_size": "128MB", "checkpoint_timeout": "1min", "shared_buffers": "64MB",
		"wal_retrieve_retry_interval": "100ms", "wal_writer_delay": "100ms",
	}}
	if s.clockLib != "" {
		o.Env = []string{"LD_PRELOAD=" + s.clockLib, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"}
	}
	return o
}

// Start starts them. The caller must Stop them.
func Start(ctx context.Context) (_ *Servers, err error) {
	s := &Servers{database: home}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1"); len(found) > 0 {
		s.clockLib = found[0]
	}
	if s.primary, err = postgres.Start(ctx, s.options()); err != nil {
		return s, err
	}
	if err := setUp(ctx, s.primary.URL(), authoritySetup, migrations.Lease); err != nil {
		return s, err
	}
	if s.resources, err = postgres.Start(ctx, postgres.Options{Durable: true, MaxConnections: 200}); err != nil {
		return s, err
	}
	if err := setUp(ctx, s.resources.URL(), resourceSetup, migrations.Fence, migrations.Report); err != nil {
		return s, err
	}
	s.authority.Set(address(s.primary))
	s.resource.Set(address(s.resources))
	return s, nil
}

// Stop ends the servers, if they are its own, and removes their data.
func (s *Servers) Stop() error {
	if s.lent {
		return nil
	}
	var err error
	for _, server := range []*postgres.Server{s.standby, s.primary, s.resources} {
		if server != nil { // nobody needs what an orderly end would save
			_ = server.Kill()
			err = errors.Join(err, server.Stop())
		}
	}
	return err
}

// follow makes a standby, where there is none and it can. A primary may still be on its way up again, and
// a clock that is set by days looks to it like a copy that was silent for as long: then there is none until
// the next one is wanted. That it never can is an error.
func (s *Servers) follow(ctx context.Context) error {
	if s.standby != nil {
		return nil
	}
	standby, err := s.primary.Standby(ctx, s.options())
	if err != nil {
		s.failed++
		if s.failed < copies && ctx.Err() == nil {
			return nil
		}
		return fmt.Errorf("no standby can be made, %d times in a row: %w", s.failed, err)
	}
	s.standby, s.failed = standby, 0
	return s.writeClock(standby)
}

// copies is how often in a row a standby may fail to be made.
const copies = 10

// crash kills the authority and starts it again on what it had committed. The data directory is kept
// as it is in between, for restore.
func (s *Servers) crash(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.taken) > 20*time.Second {
		return s.keep(ctx)
	}
	return errors.Join(s.primary.Kill(), s.primary.Restart(ctx))
}

// keep kills the primary, copies its data directory, and starts it again. What it commits from the kill on the copy
// lacks; and as in every crash, what it had not waited to see on disk may be gone already.
func (s *Servers) keep(ctx context.Context) error {
	s.taken = time.Now()
	if err := s.primary.Kill(); err != nil {
		return err
	}
	s.snapshot = filepath.Join(filepath.Dir(s.primary.DataDir()), "snapshot")
	if err := os.RemoveAll(s.snapshot); err != nil {
		return err
	}
	if err := copyTree(ctx, s.primary.DataDir(), s.snapshot); err != nil {
		return err
	}
	return errors.Join(os.Remove(filepath.Join(s.snapshot, "postmaster.pid")), s.primary.Restart(ctx))
}

// copyTree keeps owners and modes, which os.CopyFS does not.
func copyTree(ctx context.Context, from, to string) error {
	out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy a data directory: %w: %s", err, out)
	}
	return nil
}

// restore puts the authority back to the copy, on the same timeline: all that was committed since is
// gone. The clock alone then keeps fences growing, so it is set to where it has been at most. Where
// there is no copy, one is made a while before.
func (s *Servers) restore(ctx context.Context, while time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.snapshot == "" {
		if err := s.keep(ctx); err != nil {
			return err
		}
		wait(ctx, while)
	}
	if s.days != s.greatest {
		if err := s.set(s.greatest); err != nil {
			return err
		}
	}
	if s.standby != nil { // it is ahead of what will be
		standby := s.standby
		s.standby = nil
		if err := errors.Join(standby.Kill(), standby.Stop()); err != nil {
			return err
		}
	}
	if err := s.primary.Kill(); err != nil {
		return err
	}
	if err := os.RemoveAll(s.primary.DataDir()); err != nil {
		return err
	}
	if err := copyTree(ctx, s.snapshot, s.primary.DataDir()); err != nil {
		return err
	}
	s.losses = append(s.losses, history.Loss{From: s.taken, To: time.Now()})
	if err := s.primary.Restart(ctx); err != nil {
		return err
	}
	return s.follow(ctx)
}

// failover promotes the standby after it was cut off for a while, so that it lacks the last commits.
func (s *Servers) failover(ctx context.Context, cutOff time.Duration) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.follow(ctx); err != nil || s.standby == nil {
		return false, err
	}
	from := time.Now()
	if err := s.cutOff(ctx); err != nil {
		return false, nil //nolint:nilerr // it has no connection to its standby just now; another fault is drawn
	}
	wait(ctx, cutOff)
	if err := s.primary.Kill(); err != nil {
		return false, err
	}
	if err := s.standby.Promote(ctx); err != nil {
		return false, err
	}
	old := s.primary
	s.primary, s.standby, s.snapshot = s.standby, nil, ""
	s.losses = append(s.losses, history.Loss{From: from, To: time.Now()})
	s.authority.Set(address(s.primary))
	if err := old.Stop(); err != nil {
		return false, err
	}
	return true, s.follow(ctx)
}

// cutOff waits until the standby has what the primary had committed a moment ago, and stops the process that
// sends to it. Stopping the receiver would not do: what was sent lies in the kernel's buffers.
func (s *Servers) cutOff(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return onServer(ctx, s.primary.URL(), func(ctx context.Context, conn *pgx.Conn) error {
		var written string
		if err := conn.QueryRow(ctx, "SELECT pg_logical_emit_message(true, '', '')::text").Scan(&written); err != nil {
			return err
		}
		for there := false; !there; wait(ctx, 5*time.Millisecond) {
			err := conn.QueryRow(ctx, `SELECT coalesce((SELECT flush_lsn >= $1::text::pg_lsn FROM pg_stat_replication
				WHERE state = 'streaming'), false)`, written).Scan(&there)
			if err != nil {
				return err
			}
		}
		var sender int
		if err := conn.QueryRow(ctx, "SELECT pid FROM pg_stat_replication WHERE state = 'streaming'").Scan(&sender); err != nil {
			return err
		}
		if sender < 2 {
			return fmt.Errorf("no process %d", sender)
		}
		return syscall.Kill(sender, syscall.SIGSTOP)
	})
}

// crashResource kills the resource's server and starts it again.
func (s *Servers) crashResource(ctx context.Context) error {
	if err := s.resources.Kill(); err != nil {
		return err
	}
	return s.resources.Restart(ctx)
}

// setClock puts the clock of the authority's host so many days off.
func (s *Servers) setClock(days int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set(days)
}

func (s *Servers) set(days int) error {
	s.steps = append(s.steps, history.Step{At: time.Now(), Days: days})
	s.days, s.greatest = days, max(s.greatest, days)
	err := s.writeClock(s.primary)
	if s.standby != nil {
		err = errors.Join(err, s.writeClock(s.standby))
	}
	s.steps = append(s.steps, history.Step{At: time.Now(), Days: days})
	return err
}

// writeClock writes the file that the library reads before each look at the clock.
func (s *Servers) writeClock(server *postgres.Server) error {
	if s.clockLib == "" {
		return nil
	}
	file := filepath.Join(filepath.Dir(server.DataDir()), ".faketimerc")
	text := fmt.Sprintf("%+ds\n", s.days*24*60*60)
	if err := os.WriteFile(file+".next", []byte(text), 0o644); err != nil { //nolint:gosec // the server's user reads it
		return err
	}
	return os.Rename(file+".next", file)
}

// record returns what the checkers need to know of the authority's losses and clock.
func (s *Servers) record() (losses []history.Loss, steps []history.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.losses, s.steps
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
