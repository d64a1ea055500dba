package sales_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"math/big"
	"testing"

	"github.com/pglease/pglease/cmd/reportpublisher/internal/sales"
)

// FuzzSales feeds the reader anything. Either it refuses with a reason, or it makes a report whose
// stores and whose skus each add up to the total, exactly, and makes it again byte for byte.
func FuzzSales(f *testing.F) {
	for _, seed := range []string{
		"", header, header + good, "\xef\xbb\xbf" + header + good,
		header + "North,2026-07-01,tea,-2.125,1.0001\r\nSouth,2026-07-31,\"a, b\",9,3\r\n",
		header + "\"No\"\"rth\",2026-07-01,tea,2,1.50\n",
		header + "North,2026-07-32,tea,1e9,NaN\n", header + "\"", "\xff\xfe",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		read := func() (*sales.Summary, error) {
			return sales.Read(t.Context(), july(t), []sales.Input{file("f.csv", string(content))}, sales.Limits{Rows: 1000})
		}
		sum, err := read()
		if err != nil {
			var problems sales.InputError
			if sum != nil || !errors.As(err, &problems) || len(problems) == 0 {
				t.Fatalf("Read = %v, %v", sum, err)
			}
			return
		}
		first := report(t, sum)
		again, err := read()
		if err != nil || report(t, again) != first {
			t.Fatalf("the second reading differs: %v", err)
		}
		addsUp(t, first)
	})
}

// addsUp adds the report up with rationals, which share no code with the decimals.
func addsUp(t *testing.T, report string) {
	t.Helper()
	lines, err := csv.NewReader(bytes.NewReader([]byte(report))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string][2]*big.Rat{"store": {{}, {}}, "sku": {{}, {}}, "total": {{}, {}}}
	for _, line := range lines[1:] {
		for i, column := range []int{3, 4} {
			value, ok := new(big.Rat).SetString(line[column])
			if !ok {
				t.Fatalf("%q is no number", line[column])
			}
			sums[line[1]][i].Add(sums[line[1]][i], value)
		}
	}
	for i := range 2 {
		if sums["store"][i].Cmp(sums["total"][i]) != 0 || sums["sku"][i].Cmp(sums["total"][i]) != 0 {
			t.Fatalf("does not add up:\n%s", report)
		}
	}
}
