package main

import (
	"context"
	"io"
)

func growthCommand(context.Context, []string, io.Writer, io.Writer) error { return nil }
func docs(context.Context, []string, io.Writer) error { return nil }
