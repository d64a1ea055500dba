package sales

import (
	"fmt"
	"strconv"
	"strings"
)

// A Problem is one reason to refuse the input. Line is 0 where it concerns the file as a whole;
// File is empty where it concerns all of them together.
type Problem struct {
	File   string
	Line   int
	Reason string
}

// String returns file:line: reason.
func (p Problem) String() string {
	switch {
	case p.File == "":
		return p.Reason
	case p.Line == 0:
		return p.File + ": " + p.Reason
	}
	return p.File + ":" + strconv.Itoa(p.Line) + ": " + p.Reason
}

// An InputError is what Read returns for input that it refuses: all that is wrong, up to
// maxProblems, in the order of the files and lines.
type InputError []Problem

// Error returns one problem a line.
func (ps InputError) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

const maxProblems = 20

// Full tells whether reading was ended because there were so many.
func (ps InputError) Full() bool { return len(ps) >= maxProblems }

func (ps *InputError) add(file string, line int, format string, args ...any) {
	if len(*ps) < maxProblems {
		*ps = append(*ps, Problem{File: file, Line: line, Reason: fmt.Sprintf(format, args...)})
	}
}

// quote shows a text of the input, shortened, with everything unprintable escaped.
func quote(text string) string {
	const longest = 60
	if len(text) <= longest {
		return strconv.Quote(text)
	}
	return strconv.Quote(text[:longest]) + "..."
}
