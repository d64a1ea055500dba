package sales

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/apd/v3"
)

// exact is the arithmetic of all sums. It has room for any sum that the limits allow, and a result
// that would need rounding is an error instead.
var exact = apd.Context{
	Precision:   60,
	MaxExponent: apd.MaxExponent,
	MinExponent: apd.MinExponent,
	Traps:       apd.DefaultTraps | apd.Inexact,
}

// A shape says which numbers a column takes.
type shape struct {
	whole, decimals int // the most digits before and after the point
	negative        bool
}

var (
	quantityShape = shape{whole: 9, decimals: 3, negative: true}
	priceShape    = shape{whole: 9, decimals: 4}
)

// parse reads a plain decimal number: digits, and a point with digits after it where there are
// decimals. No plus sign, exponent, thousands separator, decimal comma, NaN or infinity: each means
// that the file was made for another reader, and a guess would be off by a factor.
func (s shape) parse(text string) (*apd.Decimal, error) {
	digits, minus := strings.CutPrefix(text, "-")
	whole, decimals, point := strings.Cut(digits, ".")
	switch {
	case !allDigits(whole) || point && !allDigits(decimals):
		return nil, fmt.Errorf("%s is not a plain number, want digits and a decimal point as in 12.50", quote(text))
	case len(whole) > s.whole:
		return nil, fmt.Errorf("%s has more than %d digits before the point", quote(text), s.whole)
	case len(decimals) > s.decimals:
		return nil, fmt.Errorf("%s has more than %d digits after the point", quote(text), s.decimals)
	}
	value, _, err := exact.NewFromString(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", quote(text), err)
	}
	if minus && !value.IsZero() && !s.negative {
		return nil, errors.New("is negative; a return has a negative quantity and a positive price")
	}
	return value, nil
}

func allDigits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return text != ""
}

// scale is how many decimals d needs.
func scale(d *apd.Decimal) int32 {
	var reduced apd.Decimal
	reduced.Reduce(d)
	return max(0, -reduced.Exponent)
}

// format writes d with exactly so many decimals; they must be enough.
func format(d *apd.Decimal, decimals int32) (string, error) {
	var out apd.Decimal
	if _, err := exact.Quantize(&out, d, -decimals); err != nil {
		return "", err
	}
	if out.IsZero() {
		out.Negative = false
	}
	return out.Text('f'), nil
}
