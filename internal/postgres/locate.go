package postgres

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// locate returns the first usable binaries of the chain. Each step that fails leaves its reason,
// so that the error can tell all of them.
func locate(ctx context.Context, who account, opts Options) (binaries, error) {
	bin, err := onThisMachine(ctx, who, opts.Version)
	if err == nil || os.Getenv(binDirVariable) != "" {
		return bin, err
	}
	reasons := []string{oneLine(err)}
	if opts.Version != "" {
		if bin, err = fromNPM(ctx, who, opts.Version); err == nil {
			return bin, nil
		}
		reasons = append(reasons, "npm: "+oneLine(err))
	}
	if bin, err = fromEmbedded(ctx, who, opts); err == nil {
		return bin, nil
	}
	reasons = append(reasons, "download: "+oneLine(err))
	if err := ctx.Err(); err != nil {
		return binaries{}, fmt.Errorf("look for Postgres: %w", err)
	}
	return binaries{}, fmt.Errorf("%w (%s): %s, set %s to a directory with initdb and postgres, or give the URL of a server",
		ErrNotFound, strings.Join(reasons, "; "), installHint(opts.Version), binDirVariable)
}

// oneLine is the first line of an error, short enough to be one of several in a sentence.
func oneLine(err error) string {
	line, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	const limit = 200
	if len(line) > limit {
		line = strings.ToValidUTF8(line[:limit], "") + "..."
	}
	return line
}

// installHint says how Postgres is installed here, as a phrase.
func installHint(version string) string {
	if runtime.GOOS == "darwin" {
		if version == "" {
			version = "18"
		}
		return "install it with `brew install postgresql@" + version + "`"
	}
	for _, h := range []struct{ tool, command string }{
		{"apt-get", "apt-get install postgresql" + prefixed("-", version)},
		{"dnf", "dnf install postgresql-server"},
		{"yum", "yum install postgresql-server"},
		{"apk", "apk add postgresql" + version},
		{"pacman", "pacman -S postgresql"},
		{"zypper", "zypper install postgresql" + version + "-server"},
		{"pkg", "pkg install postgresql" + withDefault(version, "17") + "-server"},
	} {
		if _, err := exec.LookPath(h.tool); err == nil {
			return "install it with `" + h.command + "`"
		}
	}
	return "install the PostgreSQL server"
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

func withDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
