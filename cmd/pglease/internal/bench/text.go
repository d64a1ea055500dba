package bench

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Print writes the result for people, in at most 80 columns.
func (r Result) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", r.Work, r.how())
	if !r.Durable {
		fmt.Fprintf(&b, "fsync or synchronous_commit is off: a crash of the server loses commits\n")
	}
	fmt.Fprintln(&b)
	width := 40
	for _, name := range []string{r.work.unit, r.work.limit, r.Also} {
		width = max(width, len(name))
	}
	line := func(name, rate, p50, p99, wal string) {
		fmt.Fprintf(&b, "%-*s%9s%8s%8s%9s\n", width, name, rate, p50, p99, wal)
	}
	line("", "a second", "p50", "p99", "WAL each")
	line(r.work.unit, number(r.Rate), duration(r.P50), duration(r.P99), number(r.WAL)+" B")
	line(r.work.limit, number(r.LimitRate), duration(r.LimitP50), duration(r.LimitP99), number(r.LimitWAL)+" B")
	if r.Also != "" {
		line(r.Also, number(r.AlsoRate), duration(r.AlsoP50), duration(r.AlsoP99), number(r.AlsoWAL)+" B")
	}
	fmt.Fprintf(&b, "\nratio to the limit %.2f (%.2f to %.2f over the rounds)", r.Ratio, r.RatioLow, r.RatioHigh)
	if r.Also != "" {
		fmt.Fprintf(&b, "\n%s: %.2f times the rate", r.Also, r.AlsoRatio)
	}
	fmt.Fprintf(&b, "\n%.4g statements each", r.Statements)
	if r.Trips < r.Statements {
		fmt.Fprintf(&b, ", in %.4g round trips", r.Trips)
	}
	fmt.Fprintln(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Result) how() string {
	parts := []string{count(r.Clients, "client")}
	if r.Waiters > 0 {
		parts = []string{count(r.Waiters, "waiter")}
	}
	switch {
	case r.Processes == 1:
		parts[0] += " in one process"
	case r.Processes > 1:
		parts[0] += fmt.Sprintf(" in %d processes", r.Processes)
	}
	if r.Direct {
		parts = append(parts, "direct wake")
	}
	if r.Leases > 0 {
		parts = append(parts, count(r.Leases, "lease"))
	}
	history := map[bool]string{true: "on", false: "off"}[r.History]
	parts = append(parts, fmt.Sprintf("%s of %v", count(r.Rounds, "round"), time.Duration(r.ForMS)*time.Millisecond), "history "+history)
	return strings.Join(parts, ", ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func duration(us float64) string {
	switch {
	case us < 1_000:
		return fmt.Sprintf("%.0f µs", us)
	case us < 100_000:
		return fmt.Sprintf("%.1f ms", us/1_000)
	}
	return fmt.Sprintf("%.0f ms", us/1_000)
}

func number(n float64) string { return fmt.Sprintf("%.0f", n) }
