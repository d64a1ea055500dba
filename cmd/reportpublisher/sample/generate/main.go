// Command generate writes the sample: the sales of three stores in July 2026. It makes the same
// bytes on every machine.
package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// An article is something that the stores sell. The price is in hundredths; goods sold by weight
// have quantities with three decimals.
type article struct {
	sku      string
	price    int
	byWeight bool
}

var articles = []article{
	{sku: "bread-rye", price: 420},
	{sku: "cheese-gouda", price: 1890, byWeight: true},
	{sku: "coffee-250g", price: 695},
	{sku: "jam-plum", price: 379},
	{sku: "tea-green", price: 525},
}

var stores = []string{"harbour", "market", "station"}

func main() {
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	for i, store := range stores {
		if err := os.WriteFile(filepath.Join(dir, store+".csv"), sales(store, uint64(i)), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "generate:", err)
			os.Exit(1)
		}
	}
}

// sales is one store's month: two articles on each day that the store is open, and now and then a
// return.
func sales(store string, seed uint64) []byte {
	// The generator itself and not the functions of rand.Rand, whose results no document fixes.
	source := rand.NewPCG(2026, seed)
	below := func(n int) int { return int(source.Uint64() % uint64(n)) }

	var out bytes.Buffer
	fmt.Fprintln(&out, "store,date,sku,quantity,unit_price")
	for day := time.Date(2026, time.July, 1, 0, 0, 0, 0, time.UTC); day.Month() == time.July; day = day.AddDate(0, 0, 1) {
		if day.Weekday() == time.Sunday {
			continue
		}
		for range 2 {
			a := articles[below(len(articles))]
			fmt.Fprintf(&out, "%s,%s,%s,%s,%d.%02d\n", store, day.Format(time.DateOnly), a.sku, quantity(a, below), a.price/100, a.price%100)
		}
	}
	return out.Bytes()
}

func quantity(a article, below func(int) int) string {
	switch {
	case a.byWeight:
		return fmt.Sprintf("%d.%d00", below(6), 1+below(9))
	case below(12) == 0:
		return "-1"
	default:
		return fmt.Sprint(1 + below(24))
	}
}
