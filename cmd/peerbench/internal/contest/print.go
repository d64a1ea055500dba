package contest

import (
	"fmt"
	"io"
	"strings"

	"github.com/pglease/pglease/cmd/peerbench/internal/grid"
)

// Text writes the result for a terminal.
func (r Result) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.how())
	for _, s := range r.Servers {
		fmt.Fprintf(&b, "%s\n", s.About)
	}
	for _, m := range r.Missing {
		fmt.Fprintf(&b, "%s\n", m)
	}
	for _, t := range r.tables() {
		t.Text(&b)
	}
	fmt.Fprintf(&b, "\n%s\n", r.facts().Title)
	facts := r.facts()
	for _, row := range facts.Rows {
		fmt.Fprintf(&b, "\n%s\n", row[0])
		for i, cell := range row[1:] {
			fmt.Fprintf(&b, "  %-20s %s\n", facts.Head[i+1], cell)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Markdown writes the result for a document. Headings begin at the given level.
func (r Result) Markdown(w io.Writer, level int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.how())
	for _, s := range r.Servers {
		fmt.Fprintf(&b, "- %s\n", s.About)
	}
	for _, m := range r.Missing {
		fmt.Fprintf(&b, "- %s\n", m)
	}
	for _, t := range append(r.tables(), r.facts()) {
		t.Markdown(&b, level)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Result) how() string {
	return fmt.Sprintf("%s, %s. %s of %d ms each, in turn; medians over the rounds. Servers and clients share the machine.",
		grid.Count(r.Cores, "core"), r.Go, grid.Count(r.Rounds, "round"), r.ForMS)
}
