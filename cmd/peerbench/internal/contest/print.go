package contest

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
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
		t.text(&b)
	}
	fmt.Fprintf(&b, "\n%s\n", r.facts().title)
	facts := r.facts()
	for _, row := range facts.rows {
		fmt.Fprintf(&b, "\n%s\n", row[0])
		for i, cell := range row[1:] {
			fmt.Fprintf(&b, "  %-20s %s\n", facts.head[i+1], cell)
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
		t.markdown(&b, level)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Result) how() string {
	return fmt.Sprintf("%d cores, %s. %d rounds of %d ms each, in turn; medians over the rounds. Servers and clients share the machine.",
		r.Cores, r.Go, r.Rounds, r.ForMS)
}

func (t table) text(b *strings.Builder) {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	fmt.Fprintf(b, "\n%s\n\n", t.title)
	for _, row := range append([][]string{t.head}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line.WriteString(cell + space)
			} else {
				line.WriteString("  " + space + cell)
			}
		}
		fmt.Fprintln(b, strings.TrimRight(line.String(), " "))
	}
}

func (t table) markdown(b *strings.Builder, level int) {
	fmt.Fprintf(b, "\n%s %s\n\n", strings.Repeat("#", level), t.title)
	if t.note != "" {
		fmt.Fprintf(b, "%s\n\n", t.note)
	}
	line := func(cells []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.head)
	rule := make([]string, len(t.head))
	for i := range rule {
		rule[i] = "---:"
		if i == 0 || t.words {
			rule[i] = "---"
		}
	}
	line(rule)
	for _, row := range t.rows {
		line(row)
	}
}
