//go:build !unix

package postgres_test

import (
	"os/exec"
	"testing"
)

func asNobody(*testing.T, *exec.Cmd, string) {}
