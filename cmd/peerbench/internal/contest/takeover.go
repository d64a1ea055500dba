package contest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
)

// HoldCommand is the argument that makes this program a holder: peer, address, key and TTL follow.
const HoldCommand = "hold"

const (
	heldLine = "held"
	// inLine is how long a waiter is given to take its place before the holder is killed.
	inLine = 300 * time.Millisecond
)

// takeovers kills a holder of each peer, at the same time for all of them, and notes when the one
// who waits has the lock.
func (s *stage) takeovers(ctx context.Context) error {
	var contestants []peers.Peer
	for _, p := range s.peers {
		if p.OnlyHandOvers {
			continue
		}
		if p.Leader != nil {
			p.Open = p.Leader
		}
		contestants = append(contestants, p)
	}
	took := make([][]time.Duration, len(contestants))
	for round := range s.Rounds {
		errs := make([]error, len(contestants))
		var all sync.WaitGroup
		for i, p := range contestants {
			all.Go(func() {
				d, err := s.takeover(ctx, p, fmt.Sprintf("takeover/%d", round))
				took[i], errs[i] = append(took[i], d), err
			})
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	for i, p := range contestants {
		s.result.Takeovers = append(s.result.Takeovers, takeoverOf(p, s.ttl(p), took[i]))
	}
	return nil
}

func (s *stage) ttl(p peers.Peer) time.Duration {
	if p.LeaderTTL > 0 {
		return p.LeaderTTL
	}
	return s.TTL
}

// takeover is one: from the SIGKILL until the waiter's call has returned.
func (s *stage) takeover(ctx context.Context, p peers.Peer, key string) (_ time.Duration, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("takeover of %s: %w", p.Name, err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, time.Minute+2*s.ttl(p))
	defer cancel()
	holder, err := s.startHolder(ctx, p, key)
	if err != nil {
		return 0, err
	}
	defer holder.kill()
	crowd, err := p.Open(ctx, peers.Options{
		Address: s.addresses[p.Server], N: 1, Apart: true, TTL: s.TTL, Hold: true, Count: &measure.Counter{},
	})
	if err != nil {
		return 0, err
	}
	defer crowd.Close()
	got := make(chan error, 1)
	var at time.Time
	var release func(context.Context) error
	go func() {
		var err error
		release, err = crowd.Sessions[0].Acquire(ctx, key, true)
		at = time.Now()
		got <- err
	}()
	// A moment anywhere between two renewals.
	select {
	case err := <-got:
		return 0, errors.Join(errors.New("the lock was given while another held it"), err)
	case <-time.After(inLine + rand.N(s.TTL)):
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	killed := time.Now()
	holder.kill()
	if err := <-got; err != nil {
		return 0, err
	}
	return at.Sub(killed), release(ctx)
}

// holder is a process that has a lock.
type holder struct {
	cmd   *exec.Cmd
	once  sync.Once
	ended chan struct{}
}

func (h *holder) kill() {
	h.once.Do(func() { _ = h.cmd.Process.Kill() })
	<-h.ended
}

func (s *stage) startHolder(ctx context.Context, p peers.Peer, key string) (*holder, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, HoldCommand, p.Name, s.addresses[p.Server], key, s.TTL.String())
	// The pipe's end is the holder's end: should we be killed, it reads that and stops.
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h := &holder{cmd: cmd, ended: make(chan struct{})}
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		_ = cmd.Wait() // it is killed
		close(h.ended)
	}()
	if strings.TrimSpace(line) != heldLine {
		h.kill()
		return nil, errors.Join(errors.New("the holder did not get the lock: "+complaints.String()), err)
	}
	return h, nil
}

// Hold is what the holder does: it takes the lock, says so, and keeps it until its input ends.
func Hold(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) != 4 {
		return errors.New("hold wants a peer, an address, a key and a TTL")
	}
	p, ok := peers.ByName(args[0])
	if !ok {
		return fmt.Errorf("there is no peer %q", args[0])
	}
	ttl, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	open := p.Open
	if open == nil {
		open = p.Leader
	}
	crowd, err := open(ctx, peers.Options{Address: args[1], N: 1, Apart: true, TTL: ttl, Hold: true, Count: &measure.Counter{}})
	if err != nil {
		return err
	}
	defer crowd.Close()
	if _, err := crowd.Sessions[0].Acquire(ctx, args[2], true); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(stdout, heldLine); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stdin)
	return err
}
