package sales

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/apd/v3"
)

// A Summary is one month's sales by store and by sku. Read makes it; it is not safe for concurrent
// use.
type Summary struct {
	Month Month
	Files int
	Rows  int

	stores, skus map[string]*sum
	total        sum
}

// A sum is how much was sold, and for how much.
type sum struct{ quantity, amount apd.Decimal }

func newSummary(month Month) *Summary {
	return &Summary{Month: month, stores: map[string]*sum{}, skus: map[string]*sum{}}
}

// Stores is how many stores have sales.
func (s *Summary) Stores() int { return len(s.stores) }

// Total is the amount of all sales, as the report shows it.
func (s *Summary) Total() string {
	_, decimals := s.decimals()
	text, err := format(&s.total.amount, decimals)
	if err != nil {
		return err.Error()
	}
	return text
}

// add counts one row. The amount is quantity times price, exactly.
func (s *Summary) add(r row, names int) error {
	var amount apd.Decimal
	if _, err := exact.Mul(&amount, r.quantity, r.price); err != nil {
		return err
	}
	for _, group := range []struct {
		what string
		sums map[string]*sum
		name string
	}{{"stores", s.stores, r.store}, {"skus", s.skus, r.sku}} {
		of, ok := group.sums[group.name]
		if !ok {
			if len(group.sums) >= names {
				return fmt.Errorf("more than %d different %s", names, group.what)
			}
			of = &sum{}
			group.sums[group.name] = of
		}
		if err := of.add(r.quantity, &amount); err != nil {
			return err
		}
	}
	if err := s.total.add(r.quantity, &amount); err != nil {
		return err
	}
	s.Rows++
	return nil
}

func (of *sum) add(quantity, amount *apd.Decimal) error {
	if _, err := exact.Add(&of.quantity, &of.quantity, quantity); err != nil {
		return err
	}
	_, err := exact.Add(&of.amount, &of.amount, amount)
	return err
}

// decimals is the least number of decimals that shows every figure of the report exactly; for
// amounts at least two.
func (s *Summary) decimals() (quantity, amount int32) {
	amount = 2
	for _, sums := range []map[string]*sum{s.stores, s.skus, {"": &s.total}} {
		for _, of := range sums {
			quantity = max(quantity, scale(&of.quantity))
			amount = max(amount, scale(&of.amount))
		}
	}
	return quantity, amount
}

// CSV writes the report: a header, a line a store, a line a sku, each sorted by name byte for byte,
// and the total. Lines end in LF. No figure is rounded, so each group adds up to the total.
func (s *Summary) CSV() ([]byte, error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	if err := w.Write([]string{"month", "by", "name", "quantity", "amount"}); err != nil {
		return nil, err
	}
	quantity, amount := s.decimals()
	line := func(by, name string, of *sum) error {
		q, err := format(&of.quantity, quantity)
		if err != nil {
			return err
		}
		a, err := format(&of.amount, amount)
		if err != nil {
			return err
		}
		return w.Write([]string{s.Month.String(), by, name, q, a})
	}
	for _, group := range []struct {
		by   string
		sums map[string]*sum
	}{{"store", s.stores}, {"sku", s.skus}, {"total", map[string]*sum{"": &s.total}}} {
		for _, name := range slices.Sorted(maps.Keys(group.sums)) {
			if err := line(group.by, name, group.sums[name]); err != nil {
				return nil, err
			}
		}
	}
	w.Flush()
	return out.Bytes(), w.Error()
}
