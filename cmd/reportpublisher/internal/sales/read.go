package sales

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"
)

// Limits bound what Read takes. The zero value of a field means its default.
type Limits struct {
	FileBytes int64 // bytes of one file; 64 MiB
	Rows      int   // rows of all files together; 1,000,000
	Names     int   // different stores, and different skus; 50,000 of each
}

func (l Limits) filled() Limits {
	if l.FileBytes == 0 {
		l.FileBytes = 64 << 20
	}
	if l.Rows == 0 {
		l.Rows = 1_000_000
	}
	if l.Names == 0 {
		l.Names = 50_000
	}
	return l
}

// Read adds up the month's sales in all inputs. It returns an InputError for input that it refuses,
// and the context's cause when that ends first; then there is no summary.
func Read(ctx context.Context, month Month, inputs []Input, limits Limits) (*Summary, error) {
	r := &reader{month: month, limits: limits.filled(), sum: newSummary(month), contents: map[[sha256.Size]byte]string{}}
	for _, in := range inputs {
		if err := r.file(ctx, in); err != nil {
			return nil, err
		}
		if r.problems.Full() || r.stopped {
			break
		}
	}
	switch {
	case len(r.problems) > 0:
		return nil, r.problems
	case r.sum.Rows == 0:
		return nil, InputError{{Reason: fmt.Sprintf("no sales of %s: there is nothing to publish", month)}}
	}
	return r.sum, nil
}

// A reader is one call of Read.
type reader struct {
	month    Month
	limits   Limits
	sum      *Summary
	problems InputError
	contents map[[sha256.Size]byte]string // the rows of a file, and its name
	stopped  bool                         // a limit was passed
}

// file adds one input to the sums. It returns an error only when the context ended.
func (r *reader) file(ctx context.Context, in Input) error {
	content, err := in.load(ctx, r.limits.FileBytes)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		r.problems.add(in.Name, 0, "%s", reason(err))
		return nil
	}
	records := csv.NewReader(bytes.NewReader(content))
	records.FieldsPerRecord = -1 // parseRow counts, and says which columns it wants
	records.ReuseRecord = true
	if !r.header(in.Name, records) {
		return nil
	}
	before, digest := r.sum.Rows, sha256.New()
	if err := r.rows(ctx, in.Name, records, digest); err != nil {
		return err
	}
	r.sum.Files++
	if r.sum.Rows > before {
		r.once(in.Name, [sha256.Size]byte(digest.Sum(nil)))
	}
	return nil
}

func (r *reader) header(name string, records *csv.Reader) bool {
	fields, err := records.Read()
	if errors.Is(err, io.EOF) {
		r.problems.add(name, 0, "is empty, want at least the header")
		return false
	}
	if err == nil {
		err = checkHeader(fields)
	}
	if err != nil {
		line, reason := at(records, err)
		r.problems.add(name, line, "%s", reason)
	}
	return err == nil
}

func (r *reader) rows(ctx context.Context, name string, records *csv.Reader, digest hash.Hash) error {
	for !r.problems.Full() {
		fields, err := records.Read()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			// After a broken quote it is unknown where the next record begins.
			line, reason := at(records, err)
			r.problems.add(name, line, "%s", reason)
			return nil
		}
		line, _ := records.FieldPos(0)
		if !r.row(name, line, fields, digest) {
			r.stopped = true
			return nil
		}
	}
	return nil
}

// row adds one record. It returns false where a limit forbids to go on.
func (r *reader) row(name string, line int, fields []string, digest hash.Hash) bool {
	parsed, errs := parseRow(fields, r.month)
	for _, err := range errs {
		r.problems.add(name, line, "%s", err)
	}
	if len(errs) > 0 {
		return true
	}
	if r.sum.Rows >= r.limits.Rows {
		r.problems.add(name, line, "more than %d rows in all files together", r.limits.Rows)
		return false
	}
	if err := r.sum.add(parsed, r.limits.Names); err != nil {
		r.problems.add(name, line, "%s", err)
		return false
	}
	fmt.Fprintf(digest, "%q %s %q %f %f\n", parsed.store, parsed.day.Format(time.DateOnly), parsed.sku, parsed.quantity, parsed.price)
	return true
}

// once refuses a file whose rows are another's, row for row: a copy, perhaps saved with another
// line ending.
func (r *reader) once(name string, digest [sha256.Size]byte) {
	if other, ok := r.contents[digest]; ok {
		r.problems.add(name, 0, "has the same rows as %s: its sales would count twice", other)
		return
	}
	r.contents[digest] = name
}

// at returns the line that an error of the CSV concerns, and what is wrong there.
func at(records *csv.Reader, err error) (line int, reason string) {
	var syntax *csv.ParseError
	if errors.As(err, &syntax) {
		return syntax.Line, syntax.Err.Error()
	}
	line, _ = records.FieldPos(0)
	return line, err.Error()
}
