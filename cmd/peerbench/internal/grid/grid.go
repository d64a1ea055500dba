// Package grid prints tables as text and as Markdown.
package grid

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A Table is printed as text or as Markdown. The first column is left-aligned, the others right.
type Table struct {
	Title string
	Note  string
	Head  []string
	Rows  [][]string
	Words bool // all columns are left-aligned
}

// Text writes the table for a terminal, without its note.
func (t Table) Text(b *strings.Builder) {
	widths := make([]int, len(t.Head))
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	fmt.Fprintf(b, "\n%s\n\n", t.Title)
	for _, row := range append([][]string{t.Head}, t.Rows...) {
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

// Markdown writes the table for a document, below a heading of the given level.
func (t Table) Markdown(b *strings.Builder, level int) {
	fmt.Fprintf(b, "\n%s %s\n\n", strings.Repeat("#", level), t.Title)
	if t.Note != "" {
		fmt.Fprintf(b, "%s\n\n", t.Note)
	}
	line := func(cells []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.Head)
	rule := make([]string, len(t.Head))
	for i := range rule {
		rule[i] = "---:"
		if i == 0 || t.Words {
			rule[i] = "---"
		}
	}
	line(rule)
	for _, row := range t.Rows {
		line(row)
	}
}

// Count says how many there are of what: "1 round", "3 rounds".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
