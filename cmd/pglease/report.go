package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/pglease/pglease/migrations"
)

// report prints an error for a person: of a migration, the whole statement at fault.
func report(stderr io.Writer, err error) {
	var failed *migrations.Error
	if !errors.As(err, &failed) {
		fmt.Fprintf(stderr, "pglease: %v\n", err)
		return
	}
	short := *failed
	short.Statement, short.Hint = "", ""
	fmt.Fprintf(stderr, "pglease: %v\n", &short)
	if failed.Statement != "" {
		fmt.Fprintf(stderr, "The statement at fault:\n    %s\n", strings.ReplaceAll(failed.Statement, "\n", "\n    "))
	}
	if failed.Hint != "" {
		fmt.Fprintf(stderr, "Hint: %s\n", failed.Hint)
	}
}
