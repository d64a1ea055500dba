package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const columns = 80

// A Story prints what happens, each line with the time since the start and who speaks. It is plain
// text, at most 80 columns wide.
type Story struct {
	out   io.Writer
	start time.Time
}

// NewStory begins a story now.
func NewStory(out io.Writer) *Story { return &Story{out: out, start: time.Now()} }

// tell prints one thing that happened, wrapped to the width of a terminal.
func (s *Story) tell(who, format string, args ...any) {
	prefix := fmt.Sprintf("%6.2f s  %-5s ", time.Since(s.start).Seconds(), who)
	s.wrap(prefix, strings.Repeat(" ", len(prefix)), fmt.Sprintf(format, args...))
}

// say prints a paragraph that belongs to no moment.
func (s *Story) say(format string, args ...any) {
	s.wrap("", "", fmt.Sprintf(format, args...))
}

// gap prints an empty line.
func (s *Story) gap() { fmt.Fprintln(s.out) }

// row prints a line of a table as it is.
func (s *Story) row(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// wrap breaks the text between words. A word longer than a line stays whole.
func (s *Story) wrap(first, rest, text string) {
	line := first
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && width(line)+1+width(word) > columns {
			fmt.Fprintln(s.out, line)
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	fmt.Fprintln(s.out, line)
}

func width(text string) int { return len([]rune(text)) }

// short is enough of a lease id to tell two apart.
func short(lease string) string { return lease[:min(len(lease), 8)] + "…" }

func seconds(ms int64) string {
	return fmt.Sprintf("%.2f s", (time.Duration(ms) * time.Millisecond).Seconds())
}
