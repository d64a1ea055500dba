package migrations

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A statementError says which statement the database refused.
type statementError struct {
	statement string
	err       error
}

func (e *statementError) Error() string { return e.err.Error() }
func (e *statementError) Unwrap() error { return e.err }

// exec runs one statement.
func exec(ctx context.Context, tx pgx.Tx, sql string, args ...any) error {
	if _, err := tx.Exec(ctx, sql, args...); err != nil {
		return &statementError{sql, err}
	}
	return nil
}

// execAll runs a text of many statements as one message.
func execAll(ctx context.Context, tx pgx.Tx, text string) error {
	results := tx.Conn().PgConn().Exec(ctx, text)
	done := 0
	for results.NextResult() {
		if _, err := results.ResultReader().Close(); err != nil {
			break // Close returns it again
		}
		done++
	}
	if err := results.Close(); err != nil {
		return &statementError{atFault(text, done, err), err}
	}
	return nil
}

// atFault cuts the statement out of the text that err is about, given how many were done before.
func atFault(text string, done int, err error) string {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return ""
	}
	statements := split(text)
	if refused.Position > 0 {
		// A syntax error anywhere is reported before the first statement runs, so the position,
		// in characters from 1, goes before the count.
		at := len(string([]rune(text)[:min(int(refused.Position)-1, len([]rune(text)))]))
		for _, s := range statements {
			if at < s.end {
				return s.text
			}
		}
	}
	if done < len(statements) {
		return statements[done].text
	}
	return ""
}

type statement struct {
	text string
	end  int // offset behind it in the whole text, in bytes
}

// A token is what may hold a semicolon that ends no statement, or such a semicolon. Comments do
// not nest here, and a body may not be written as BEGIN ATOMIC: none of our files needs either.
var token = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/|[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$[A-Za-z_]*\$|;`)

// split cuts a text into its statements, without comments before them. It is used for messages only.
func split(text string) []statement {
	var all []statement
	start := 0
	for at := 0; at < len(text); {
		found := token.FindStringIndex(text[at:])
		if found == nil {
			break
		}
		word := text[at+found[0] : at+found[1]]
		at += found[1]
		switch {
		case word == ";":
			all = appendStatement(all, text, start, at)
			start = at
		case word[0] == '$':
			if length := strings.Index(text[at:], word); length >= 0 {
				at += length + len(word)
			}
		}
	}
	return appendStatement(all, text, start, len(text))
}

var leadingComments = regexp.MustCompile(`^(?:\s+|--[^\n]*(?:\n|$)|(?s:/\*.*?\*/))+`)

func appendStatement(all []statement, text string, start, end int) []statement {
	s := strings.TrimSpace(leadingComments.ReplaceAllString(text[start:end], ""))
	if s == "" || s == ";" {
		return all
	}
	return append(all, statement{s, end})
}
