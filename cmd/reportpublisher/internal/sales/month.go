package sales

import (
	"fmt"
	"strings"
	"time"
)

// A Month of one year. The zero value is no month.
type Month struct{ first time.Time }

// ParseMonth reads a month such as 2026-07.
func ParseMonth(text string) (Month, error) {
	first, err := time.Parse("2006-01", text)
	if err != nil {
		return Month{}, fmt.Errorf("%s is not a month, want YYYY-MM as in 2026-07", quote(text))
	}
	return Month{first: first}, nil
}

// MonthOf returns the month that a report is for: the last segment of its name, as in
// report/2026-07.
func MonthOf(report string) (Month, error) {
	month, err := ParseMonth(report[strings.LastIndexByte(report, '/')+1:])
	if err != nil {
		return Month{}, fmt.Errorf("the report's name must end in its month, as in report/2026-07: %w", err)
	}
	return month, nil
}

// String returns the month as ParseMonth reads it.
func (m Month) String() string { return m.first.Format("2006-01") }

// contains tells whether the day is in m.
func (m Month) contains(day time.Time) bool {
	return day.Year() == m.first.Year() && day.Month() == m.first.Month()
}
