package sales

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"
	"golang.org/x/text/unicode/norm"
)

// columns is the header that each file must have.
var columns = []string{"store", "date", "sku", "quantity", "unit_price"}

const maxNameLength = 100

// A row is one sale, or with a negative quantity one return.
type row struct {
	store, sku      string
	day             time.Time
	quantity, price *apd.Decimal
}

// checkHeader returns an error unless fields are the columns, in their order.
func checkHeader(fields []string) error {
	for i := range fields {
		fields[i] = trim(fields[i])
	}
	if !slices.Equal(fields, columns) {
		return fmt.Errorf("the header is %s, want %s", quote(strings.Join(fields, ",")), strings.Join(columns, ","))
	}
	return nil
}

// parseRow reads one record. It returns an error for each field that is wrong, joined.
func parseRow(fields []string, month Month) (row, []error) {
	if len(fields) != len(columns) {
		return row{}, []error{fmt.Errorf("%d fields, want %d: %s", len(fields), len(columns), strings.Join(columns, ","))}
	}
	var r row
	var errs []error
	field := func(i int, parse func(string) error) {
		if err := parse(trim(fields[i])); err != nil {
			errs = append(errs, fmt.Errorf("%s %w", columns[i], err))
		}
	}
	field(0, func(text string) (err error) { r.store, err = parseName(text); return })
	field(1, func(text string) (err error) { r.day, err = parseDay(text, month); return })
	field(2, func(text string) (err error) { r.sku, err = parseName(text); return })
	field(3, func(text string) (err error) { r.quantity, err = quantityShape.parse(text); return })
	field(4, func(text string) (err error) { r.price, err = priceShape.parse(text); return })
	return r, errs
}

// trim removes the blanks around a field: a trailing space must not make a second store.
func trim(field string) string { return strings.Trim(field, " \t\u00a0") }

// parseName reads the name of a store or a sku. Names that look the same become the same: they are
// put into the composed form of Unicode. Nothing else is folded.
func parseName(text string) (string, error) {
	switch {
	case text == "":
		return "", errors.New("is empty")
	case len(text) > maxNameLength:
		return "", fmt.Errorf("%s is longer than %d bytes", quote(text), maxNameLength)
	case !utf8.ValidString(text):
		return "", fmt.Errorf("%s is not UTF-8", quote(text))
	case strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "", fmt.Errorf("%s contains an invisible character", quote(text))
	case strings.ContainsRune("=+-@", rune(text[0])):
		return "", fmt.Errorf("%s begins as a formula does; a spreadsheet would run it", quote(text))
	}
	return norm.NFC.String(text), nil
}

func parseDay(text string, month Month) (time.Time, error) {
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s is not a day of the calendar, want YYYY-MM-DD", quote(text))
	}
	if !month.contains(day) {
		return time.Time{}, fmt.Errorf("%s is not in %s, the month of the report", text, month)
	}
	return day, nil
}
