package postgres

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
)

// makeCluster makes a data directory: a copy of one that an earlier initdb made with the same
// binaries, in a quarter of the time, or a new one where fresh asks for it or there is no cache.
func makeCluster(ctx context.Context, bin binaries, who account, fresh bool, dataDir string) error {
	if !fresh {
		if template, err := clusterTemplate(ctx, bin, who); err == nil {
			if err := copyTree(template, dataDir, who); err == nil {
				return nil
			}
			// Somebody cleared the cache meanwhile, or the disk is full, which initdb will say.
			_ = os.RemoveAll(dataDir)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return initdb(ctx, bin, who, dataDir)
}

func initdb(ctx context.Context, bin binaries, who account, dataDir string) error {
	_, err := who.output(ctx, filepath.Dir(dataDir), bin.path("initdb"), "--pgdata="+dataDir,
		"--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dataDir, "pg_hba.conf"), []byte(hostBasedAuth), 0o600)
}

// clusterTemplate returns the cached data directory for these binaries and this user, and makes it
// when there is none. It appears by one rename, so several processes may do that at once: the
// first one's stays.
func clusterTemplate(ctx context.Context, bin binaries, who account) (string, error) {
	cache, err := cacheDir("clusters", who)
	if err != nil {
		return "", err
	}
	program, err := os.Stat(bin.path("postgres"))
	if err != nil {
		return "", err
	}
	// The build is told by size and time: a package update keeps the path, and may keep the version.
	build := sha256.Sum256(fmt.Appendf(nil, "%s %d %d %s", bin.dir, program.Size(), program.ModTime().UnixNano(), hostBasedAuth))
	template := filepath.Join(cache, fmt.Sprintf("%s-%d-%x", bin.version, who.uid, build[:8]))
	if isDir(template) {
		return template, nil
	}
	staging, err := stagingDir(cache)
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(staging) }() // what is left of it is in a cache
	if err := who.give(staging); err != nil {
		return "", err
	}
	made := filepath.Join(staging, "data")
	if err := initdb(ctx, bin, who, made); err != nil {
		return "", err
	}
	return template, publish(made, template)
}

// publish moves a finished directory to where others look for it. Where another process was
// first, its directory stays, and that is no error.
func publish(made, place string) error {
	if err := os.Rename(made, place); err != nil && !isDir(place) {
		return err
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
