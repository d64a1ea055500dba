package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// copyOnline copies a running server as pg_basebackup does, for builds that come without that program.
// It has to be Postgres 15 or later, whose functions have these names.
func (p *private) copyOnline(ctx context.Context, s *Server) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "SELECT pg_backup_start('standby', true)"); err != nil {
		return err
	}
	if err := copyRunning(s.dataDir(), p.dataDir(), p.who); err != nil {
		return err
	}
	var label string
	if err := conn.QueryRow(ctx, "SELECT labelfile FROM pg_backup_stop(false)").Scan(&label); err != nil {
		return err
	}
	from := fmt.Sprintf("primary_conninfo = 'user=postgres host=%s port=%s'\n", strings.ReplaceAll(s.base, "'", "''"), strconv.Itoa(s.port))
	return errors.Join(p.put("backup_label", label), p.put("standby.signal", ""), p.put("postgresql.auto.conf", from))
}

// put writes a file into the data directory, over one that was copied.
func (p *private) put(name, text string) error {
	path := filepath.Join(p.dataDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return p.who.give(path)
}

// copyRunning copies what a backup has to have. Files come and go meanwhile, and change: the log from the
// start of the backup on repairs that.
func copyRunning(from, to string, who account) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		inside := strings.TrimPrefix(path, from)
		target := to + inside
		switch dir, base := filepath.Split(inside); {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case strings.HasPrefix(base, "postmaster."), strings.HasPrefix(base, "pgsql_tmp"):
			return nil
		case dir == "/pg_wal/", dir == "/pg_replslot/":
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if entry.IsDir() {
			err = os.Mkdir(target, 0o700)
		} else if err = copyFile(path, target); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return who.give(target)
	})
}
