package sales_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pglease/pglease/cmd/reportpublisher/internal/sales"
)

const good = "North,2026-07-01,tea,2,1.50\n"

// Each case is one malformed file, and the error that names the file, the line and the reason.
func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ content, want string }{
		"empty file":          {"", `s.csv: is empty, want at least the header`},
		"blank lines only":    {"\n\r\n", `s.csv: is empty, want at least the header`},
		"header only":         {header, `no sales of 2026-07: there is nothing to publish`},
		"no header":           {good, `s.csv:1: the header is "North,2026-07-01,tea,2,1.50", want store,date,sku,quantity,unit_price`},
		"another order":       {"date,store,sku,quantity,unit_price\n" + good, `s.csv:1: the header is "date,store,sku,quantity,unit_price", want store,date,sku,quantity,unit_price`},
		"semicolons":          {"store;date;sku;quantity;unit_price\n", `s.csv:1: the header is "store;date;sku;quantity;unit_price", want store,date,sku,quantity,unit_price`},
		"capitals":            {"Store,Date,SKU,Quantity,Unit_Price\n", `s.csv:1: the header is "Store,Date,SKU,Quantity,Unit_Price", want store,date,sku,quantity,unit_price`},
		"UTF-16":              {"\xff\xfes\x00t\x00", `s.csv:1: the header is "\xff\xfes\x00t\x00", want store,date,sku,quantity,unit_price`},
		"header after a line": {"\n\nstore\n", `s.csv:3: the header is "store", want store,date,sku,quantity,unit_price`},
		"too few fields":      {header + "North,2026-07-01,tea,2\n", `s.csv:2: 4 fields, want 5: store,date,sku,quantity,unit_price`},
		"decimal comma":       {header + "North,2026-07-01,tea,2,1,50\n", `s.csv:2: 6 fields, want 5: store,date,sku,quantity,unit_price`},
		"line of blanks":      {header + good + "   \n", `s.csv:3: 1 fields, want 5: store,date,sku,quantity,unit_price`},
		"only commas":         {header + ",,,,\n", "s.csv:2: store is empty\ns.csv:2: date \"\" is not a day of the calendar, want YYYY-MM-DD\ns.csv:2: sku is empty\ns.csv:2: quantity \"\" is not a plain number, want digits and a decimal point as in 12.50\ns.csv:2: unit_price \"\" is not a plain number, want digits and a decimal point as in 12.50"},
		"bare quote":          {header + "No\"rth,2026-07-01,tea,2,1.50\n", `s.csv:2: bare " in non-quoted-field`},
		"open quote":          {header + good + "\"North,2026-07-01,tea,2,1.50\n", `s.csv:3: extraneous or missing " in quoted-field`},
		"store missing":       {header + " ,2026-07-01,tea,2,1.50\n", `s.csv:2: store is empty`},
		"store too long":      {header + strings.Repeat("n", 101) + ",2026-07-01,tea,2,1.50\n", `s.csv:2: store "` + strings.Repeat("n", 60) + `"... is longer than 100 bytes`},
		"store not UTF-8":     {header + "Z\xfcrich,2026-07-01,tea,2,1.50\n", `s.csv:2: store "Z\xfcrich" is not UTF-8`},
		"NUL":                 {header + "No\x00rth,2026-07-01,tea,2,1.50\n", `s.csv:2: store "No\x00rth" contains an invisible character`},
		"zero-width space":    {header + "No\u200brth,2026-07-01,tea,2,1.50\n", `s.csv:2: store "No\u200brth" contains an invisible character`},
		"line in a field":     {header + "\"No\nrth\",2026-07-01,tea,2,1.50\n", `s.csv:2: store "No\nrth" contains an invisible character`},
		"formula":             {header + "North,2026-07-01,=cmd(),2,1.50\n", `s.csv:2: sku "=cmd()" begins as a formula does; a spreadsheet would run it`},
		"no such day":         {header + "North,2026-07-32,tea,2,1.50\n", `s.csv:2: date "2026-07-32" is not a day of the calendar, want YYYY-MM-DD`},
		"date of elsewhere":   {header + "North,07/01/2026,tea,2,1.50\n", `s.csv:2: date "07/01/2026" is not a day of the calendar, want YYYY-MM-DD`},
		"date and time":       {header + "North,2026-07-01T00:00:00Z,tea,2,1.50\n", `s.csv:2: date "2026-07-01T00:00:00Z" is not a day of the calendar, want YYYY-MM-DD`},
		"short date":          {header + "North,2026-7-1,tea,2,1.50\n", `s.csv:2: date "2026-7-1" is not a day of the calendar, want YYYY-MM-DD`},
		"the month before":    {header + "North,2026-06-30,tea,2,1.50\n", `s.csv:2: date 2026-06-30 is not in 2026-07, the month of the report`},
		"the year before":     {header + "North,2025-07-01,tea,2,1.50\n", `s.csv:2: date 2025-07-01 is not in 2026-07, the month of the report`},
		"exponent":            {header + "North,2026-07-01,tea,2,1e3\n", `s.csv:2: unit_price "1e3" is not a plain number, want digits and a decimal point as in 12.50`},
		"NaN":                 {header + "North,2026-07-01,tea,NaN,1.50\n", `s.csv:2: quantity "NaN" is not a plain number, want digits and a decimal point as in 12.50`},
		"infinity":            {header + "North,2026-07-01,tea,2,Infinity\n", `s.csv:2: unit_price "Infinity" is not a plain number, want digits and a decimal point as in 12.50`},
		"quoted comma":        {header + "North,2026-07-01,tea,2,\"1,50\"\n", `s.csv:2: unit_price "1,50" is not a plain number, want digits and a decimal point as in 12.50`},
		"thousands":           {header + "North,2026-07-01,tea,2,1_000\n", `s.csv:2: unit_price "1_000" is not a plain number, want digits and a decimal point as in 12.50`},
		"plus sign":           {header + "North,2026-07-01,tea,+2,1.50\n", `s.csv:2: quantity "+2" is not a plain number, want digits and a decimal point as in 12.50`},
		"two minus signs":     {header + "North,2026-07-01,tea,--2,1.50\n", `s.csv:2: quantity "--2" is not a plain number, want digits and a decimal point as in 12.50`},
		"hexadecimal":         {header + "North,2026-07-01,tea,0x10,1.50\n", `s.csv:2: quantity "0x10" is not a plain number, want digits and a decimal point as in 12.50`},
		"no whole part":       {header + "North,2026-07-01,tea,2,.50\n", `s.csv:2: unit_price ".50" is not a plain number, want digits and a decimal point as in 12.50`},
		"no decimals":         {header + "North,2026-07-01,tea,2,1.\n", `s.csv:2: unit_price "1." is not a plain number, want digits and a decimal point as in 12.50`},
		"other digits":        {header + "North,2026-07-01,tea,２,1.50\n", `s.csv:2: quantity "２" is not a plain number, want digits and a decimal point as in 12.50`},
		"currency":            {header + "North,2026-07-01,tea,2,$1.50\n", `s.csv:2: unit_price "$1.50" is not a plain number, want digits and a decimal point as in 12.50`},
		"huge quantity":       {header + "North,2026-07-01,tea,1000000000,1.50\n", `s.csv:2: quantity "1000000000" has more than 9 digits before the point`},
		"fine quantity":       {header + "North,2026-07-01,tea,1.0001,1.50\n", `s.csv:2: quantity "1.0001" has more than 3 digits after the point`},
		"fine price":          {header + "North,2026-07-01,tea,1,1.00001\n", `s.csv:2: unit_price "1.00001" has more than 4 digits after the point`},
		"negative price":      {header + "North,2026-07-01,tea,1,-1.50\n", `s.csv:2: unit_price is negative; a return has a negative quantity and a positive price`},
		"two wrong lines":     {header + "North,2026-07-01,tea,x,1\n" + good + "North,2026-07-01,tea,1,y\n", "s.csv:2: quantity \"x\" is not a plain number, want digits and a decimal point as in 12.50\ns.csv:4: unit_price \"y\" is not a plain number, want digits and a decimal point as in 12.50"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, c.want, sales.Limits{}, file("s.csv", c.content))
		})
	}
}

// refused checks that the inputs are refused with exactly this error and that no sum comes with it.
func refused(t *testing.T, want string, limits sales.Limits, inputs ...sales.Input) {
	t.Helper()
	sum, err := sales.Read(t.Context(), july(t), inputs, limits)
	var problems sales.InputError
	if sum != nil || !errors.As(err, &problems) {
		t.Fatalf("Read = %v, %v, want an InputError", sum, err)
	}
	if err.Error() != want {
		t.Errorf("error:\n%s\nwant:\n%s", err, want)
	}
}

func TestReadRefusesTheSameRowsTwice(t *testing.T) {
	t.Parallel()
	other := "\xef\xbb\xbf" + strings.ReplaceAll(header+good, "\n", "\r\n")
	refused(t, "copy.csv: has the same rows as s.csv: its sales would count twice", sales.Limits{},
		file("s.csv", header+good), file("empty.csv", header), file("copy.csv", other), file("empty2.csv", header))
}

func TestReadLimits(t *testing.T) {
	t.Parallel()
	two := header + good + "South,2026-07-01,salt,1,1\n"
	for name, c := range map[string]struct {
		limits sales.Limits
		want   string
	}{
		"bytes":  {sales.Limits{FileBytes: int64(len(two)) - 1}, "s.csv: is larger than 88 bytes"},
		"rows":   {sales.Limits{Rows: 1}, "s.csv:3: more than 1 rows in all files together"},
		"stores": {sales.Limits{Names: 1}, "s.csv:3: more than 1 different stores"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, c.want, c.limits, file("s.csv", two))
		})
	}
	exactly := sales.Limits{FileBytes: int64(len(two)), Rows: 2, Names: 2}
	if _, err := sales.Read(t.Context(), july(t), []sales.Input{file("s.csv", two)}, exactly); err != nil {
		t.Errorf("at the limits: %v", err)
	}
}

func TestReadStopsAfterTwentyProblems(t *testing.T) {
	t.Parallel()
	_, err := sales.Read(t.Context(), july(t), []sales.Input{file("s.csv", header+strings.Repeat("x\n", 1000))}, sales.Limits{})
	var problems sales.InputError
	if !errors.As(err, &problems) || len(problems) != 20 {
		t.Errorf("%d problems, want 20", len(problems))
	}
}

func TestFromPathsRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "s.csv")
	if err := os.WriteFile(path, []byte(header+good), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.csv")
	if err := os.Symlink(path, link); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	missing := filepath.Join(dir, "missing.csv")
	for name, c := range map[string]struct {
		paths []string
		want  string
	}{
		"missing":     {[]string{missing}, missing + ": no such file or directory"},
		"directory":   {[]string{dir}, dir + ": is a directory, want a file"},
		"twice":       {[]string{path, path}, path + ": is the same file as " + path + ": its sales would count twice"},
		"a link":      {[]string{path, link}, link + ": is the same file as " + path + ": its sales would count twice"},
		"stdin twice": {[]string{"-", "-"}, "-: the standard input is named twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := sales.FromPaths(c.paths, &bytes.Buffer{})
			if err == nil || err.Error() != c.want {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
}
