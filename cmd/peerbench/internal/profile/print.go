package profile

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pglease/pglease/cmd/peerbench/internal/grid"
)

// Text writes the result for a terminal.
func (r Result) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n", r.how(), r.Server)
	for _, t := range r.tables() {
		t.Text(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Markdown writes the result for a document. Headings begin at the given level.
func (r Result) Markdown(w io.Writer, level int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n- %s\n", r.how(), r.Server)
	for _, t := range r.tables() {
		t.Markdown(&b, level)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Result) tables() []grid.Table {
	list := []grid.Table{r.besideTable()}
	for _, w := range works {
		t := grid.Table{Title: w.title, Note: w.note, Head: slices.Concat([]string{"one operation", "server", "over rounds"}, more[w.name])}
		if w.name != "wakeups" && w.name != "parts" {
			t.Head = append(t.Head, "client", "× UPDATE", "WAL")
		}
		for _, row := range r.Rows {
			if row.Work == w.name {
				t.Rows = append(t.Rows, r.cells(row))
			}
		}
		if len(t.Rows) > 0 {
			list = append(list, t)
		}
	}
	return list
}

// more are columns that only some tables have.
var more = map[string][]string{"parts": {"beyond SELECT 1", "client", "WAL"}}

func (r Result) cells(row Row) []string {
	cells := []string{row.Title, micros(row.Server), fmt.Sprintf("%.0f–%.0f", row.ServerLow, row.ServerHigh)}
	client, wal := optional(row.Client, "%.0f µs"), optional(row.WAL, "%.0f B")
	switch row.Work {
	case "wakeups": // of which only the server's time is known
		return cells
	case "parts":
		return append(cells, signed(row.Server-r.row(oneName).Server)+" µs", client, wal)
	}
	return append(cells, client, optional(row.ToUpdate, "%.2f"), wal)
}

func (r Result) besideTable() grid.Table {
	t := grid.Table{
		Title: "What is beyond the limit",
		Note: "Differences of the rows below. The ratio is the limit's processor time, server and client together, to that of what " +
			"is compared: where everybody waits for the processors, rates come to about so many limits. Many clients share the sync of " +
			"a commit, which is most of what a bare UPDATE costs; the last column has the ratio without it.",
		Head: []string{"", "limit", "server", "client", "WAL", "ratio", "syncs shared"},
	}
	for _, c := range r.Beside {
		t.Rows = append(t.Rows, []string{
			c.Title, c.Limit, signed(c.Server) + " µs", signed(c.Client) + " µs", signed(c.WAL) + " B",
			fmt.Sprintf("%.2f", c.Ratio), optional(c.Shared, "%.2f"),
		})
	}
	return t
}

func micros(us float64) string {
	if us < 10 {
		return fmt.Sprintf("%.1f µs", us)
	}
	return fmt.Sprintf("%.0f µs", us)
}

func signed(x float64) string {
	if x < 0 {
		return fmt.Sprintf("−%.0f", -x)
	}
	return fmt.Sprintf("+%.0f", x)
}

func optional(x *float64, format string) string {
	if x == nil {
		return "–"
	}
	return fmt.Sprintf(format, *x)
}
