package sales_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pglease/pglease/cmd/reportpublisher/internal/sales"
)

const header = "store,date,sku,quantity,unit_price\n"

// file is an input with the given content.
func file(name, content string) sales.Input {
	return sales.Input{Name: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }}
}

func july(tb testing.TB) sales.Month {
	tb.Helper()
	month, err := sales.ParseMonth("2026-07")
	if err != nil {
		tb.Fatal(err)
	}
	return month
}

func TestMonthOf(t *testing.T) {
	t.Parallel()
	for report, want := range map[string]string{
		"report/2026-07":  "2026-07",
		"2026-12":         "2026-12",
		"a/b/0001-01":     "0001-01",
		"report/2026-13":  "",
		"report/2026-7":   "",
		"report/202607":   "",
		"report/2026-07/": "",
		"report":          "",
		"":                "",
	} {
		month, err := sales.MonthOf(report)
		if want == "" {
			if err == nil {
				t.Errorf("MonthOf(%q) = %s, want an error", report, month)
			}
			continue
		}
		if err != nil || month.String() != want {
			t.Errorf("MonthOf(%q) = %s, %v, want %s", report, month, err, want)
		}
	}
}

// Each case is one thing that real files have and that is read all the same.
func TestReadAccepts(t *testing.T) {
	t.Parallel()
	const plain = header + "North,2026-07-01,tea,2,1.50\nNorth,2026-07-31,salt,1,0.99\n"
	want := totals(t, plain)
	for name, content := range map[string]string{
		"byte order mark":    "\xef\xbb\xbf" + plain,
		"CRLF":               strings.ReplaceAll(plain, "\n", "\r\n"),
		"no last line end":   strings.TrimSuffix(plain, "\n"),
		"blank lines":        "\n" + strings.ReplaceAll(plain, "\n", "\n\n"),
		"quoted fields":      strings.ReplaceAll(plain, "North", `"North"`),
		"quoted header":      strings.Replace(plain, "store,date", `"store","date"`, 1),
		"trailing blanks":    strings.ReplaceAll(plain, "North,", "North \t,"),
		"no-break space":     strings.ReplaceAll(plain, ",tea,", ",\u00a0tea,"),
		"leading zeros":      strings.ReplaceAll(plain, ",2,1.50", ",002,01.5000"),
		"rows the other way": header + "North,2026-07-31,salt,1,0.99\nNorth,2026-07-01,tea,2,1.50\n",
		"a returned piece":   plain + "North,2026-07-02,tea,-1,1.50\nNorth,2026-07-02,tea,1,1.50\n",
		"sold and returned":  plain + "North,2026-07-02,tea,0,1.50\nNorth,2026-07-02,tea,-0,1.50\n",
		"given away":         plain + "North,2026-07-02,tea,-3,0\nNorth,2026-07-02,tea,3,0.00\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := totals(t, content); got != want {
				t.Errorf("report:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func totals(t *testing.T, content string) string {
	t.Helper()
	sum, err := sales.Read(t.Context(), july(t), []sales.Input{file("sales.csv", content)}, sales.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return report(t, sum)
}

func report(t *testing.T, sum *sales.Summary) string {
	t.Helper()
	out, err := sum.CSV()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// Each golden file is the report of the input beside it.
func TestReadGolden(t *testing.T) {
	t.Parallel()
	inputs, err := filepath.Glob("testdata/golden/*.in.csv")
	if err != nil || len(inputs) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, path := range inputs {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			files, err := sales.FromPaths([]string{path}, nil)
			if err != nil {
				t.Fatal(err)
			}
			sum, err := sales.Read(t.Context(), july(t), files, sales.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(strings.TrimSuffix(path, ".in.csv") + ".want.csv")
			if err != nil {
				t.Fatal(err)
			}
			if got := report(t, sum); got != string(want) {
				t.Errorf("report:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func TestReadSameBytesInAnyOrder(t *testing.T) {
	t.Parallel()
	a := file("a.csv", header+"North,2026-07-01,tea,0.1,0.1\nSouth,2026-07-01,salt,3,19.99\n")
	b := file("b.csv", header+"South,2026-07-02,tea,7,0.0001\n")
	c := file("c.csv", header+"East,2026-07-03,tea,999999999.999,999999999.9999\n")
	var first string
	for _, order := range [][]sales.Input{{a, b, c}, {c, b, a}, {b, a, c}} {
		sum, err := sales.Read(t.Context(), july(t), order, sales.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		got := report(t, sum)
		if first == "" {
			first = got
		}
		if got != first {
			t.Errorf("report:\n%s\nin another order:\n%s", got, first)
		}
	}
}

func TestReadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	cause := errors.New("lease lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	endless, w := io.Pipe() // nobody writes: a terminal whose user has gone
	t.Cleanup(func() { _ = w.Close() })
	cancel(cause)
	_, err := sales.Read(ctx, july(t), []sales.Input{{Name: "pipe", Open: func() (io.ReadCloser, error) { return endless, nil }}}, sales.Limits{})
	if !errors.Is(err, cause) {
		t.Errorf("error %v, want the context's cause", err)
	}
}

// What can be read only once, reads the same again.
func TestStdinCanBeReadAgain(t *testing.T) {
	t.Parallel()
	inputs, err := sales.FromPaths([]string{sales.Stdin}, iotest.OneByteReader(strings.NewReader(header+good)))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		sum, err := sales.Read(t.Context(), july(t), inputs, sales.Limits{})
		if err != nil || sum.Rows != 1 {
			t.Errorf("got %+v, %v", sum, err)
		}
	}
}
