//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package postgres

import (
	"errors"
	"os"
	"os/exec"
)

// On these systems a server is found by its URL and never started: what ends it with us, and what
// keeps two processes from removing each other's directories, is missing.
type signalNumber int

const (
	fastShutdown signalNumber = iota
	immediateShutdown
	frozen
	killed
)

var errUnsupported = errors.New("a private server is not started on this system: give the URL of one")

func setAttributes(cmd *exec.Cmd, _ account) { cmd.Err = errUnsupported }

func children(int) []int { return nil }

func alive(int) bool { return true }

func commandLine(int) string { return "" }

func signal(int, signalNumber) error { return errUnsupported }

func lock(*os.File) bool { return false }

func owner(os.FileInfo) (int, bool) { return 0, false }
