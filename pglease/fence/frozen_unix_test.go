//go:build unix

package fence_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func init() { stopInApply = applyAndStop }

// applyAndStop applies a command twice, as an owner that is stopped in the middle of the first time, as by
// kill -STOP, and knows nothing of that.
func applyAndStop(url, owner string) error {
	ctx := context.Background()
	token, err := fence.Parse(owner)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	marks, err := fence.NewWatermarks(fence.Config{IdleTimeout: 2 * time.Second})
	if err != nil {
		return err
	}
	for _, stops := range []bool{true, false} {
		_, err := marks.Apply(ctx, pool, token, fence.Op{Key: "k", Apply: func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			_, err := tx.Exec(ctx, "INSERT INTO done VALUES ('the stopped one')")
			if err == nil && stops {
				err = stop()
			}
			return nil, err
		}})
		fmt.Printf("applied, stale %v: %v\n", fence.IsStale(err), err)
	}
	return nil
}

// stop stops this process until somebody has it go on.
func stop() error {
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, syscall.SIGCONT)
	fmt.Println("stops")
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	<-goOn // this thread may be the last to be stopped
	return nil
}

// An owner that is stopped in the middle of its command keeps the next owner out for as long as
// IdleTimeout says, and leaves nothing.
//
//	41 (process)          42
//	locks the watermark
//	writes
//	stops
//	                      establishes itself, applies its command
//	goes on: an error
//	tries again: stale
func TestAnOwnerThatStopsInApply(t *testing.T) {
	t.Parallel()
	url := pgleasetest.URL(t, migrations.Fence)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	w := newWatermarks(t)
	mustExec(t, pool, `CREATE TABLE done (who text)`)

	child, said := startStopping(t, url, token(t, 41))
	wantLine(t, said, "stops")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := w.Apply(ctx, pool, token(t, 42), fence.Op{Key: "k", Apply: func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
		_, err := tx.Exec(ctx, "INSERT INTO done VALUES ('the next')")
		return nil, err
	}}); err != nil {
		t.Errorf("the next owner: %v", err)
	}
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	wantLine(t, said, `applied, stale false: fence: advance "device/pump-7": `)
	wantLine(t, said, `applied, stale true: fence: advance "device/pump-7": `)
	if n := count(t, pool, `SELECT count(*) FROM done WHERE who = 'the next'`); n != 1 {
		t.Errorf("the next owner's command took effect %d times", n)
	}
	if n := count(t, pool, `SELECT count(*) FROM done`); n != 1 {
		t.Errorf("%d effects", n)
	}
	stands(t, pool, w, 42, 1, 0)
}

// startStopping starts the test binary as an owner that stops.
func startStopping(t *testing.T, url string, owner fence.Token) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), stopperURL+"="+url, stopperToken+"="+owner.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return cmd, bufio.NewScanner(out)
}

// wantLine reads the next line and fails the test unless it begins so.
func wantLine(t *testing.T, from *bufio.Scanner, want string) {
	t.Helper()
	if !from.Scan() || !strings.HasPrefix(from.Text(), want) {
		t.Fatalf("the process says %q, %v; want %q", from.Text(), from.Err(), want)
	}
}

// The bound is the Config's, and one that the session has already is not raised.
func TestApplyIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings map[string]string
		config   fence.Config
		want     string
	}{
		"default":    {nil, fence.Config{}, "30s"},
		"configured": {nil, fence.Config{IdleTimeout: 1500 * time.Millisecond}, "1500ms"},
		"stricter":   {map[string]string{"idle_in_transaction_session_timeout": "1234"}, fence.Config{}, "1234ms"},
		"looser":     {map[string]string{"idle_in_transaction_session_timeout": "2h"}, fence.Config{IdleTimeout: time.Hour}, "1h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, err := fence.NewWatermarks(c.config)
			if err != nil {
				t.Fatal(err)
			}
			out := mustApply(t, withSettings(t, c.settings), w, token(t, 1), fence.Op{Key: "k", Apply: func(ctx context.Context, tx pgx.Tx) (b []byte, err error) {
				err = tx.QueryRow(ctx, `SELECT current_setting('idle_in_transaction_session_timeout')::bytea`).Scan(&b)
				return b, err
			}})
			if string(out.Result) != c.want {
				t.Errorf("the bound is %s, want %s", out.Result, c.want)
			}
		})
	}
}
