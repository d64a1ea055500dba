package chart_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/pglease/pglease/cmd/peerbench/internal/chart"
)

func TestChartIsXMLWithEachLine(t *testing.T) {
	t.Parallel()
	c := chart.Chart{
		Title: "a < b & c", X: "x", Y: "y", LogX: true, Shade: &chart.Span{From: 10, To: 100, Label: "here"},
		Lines: []chart.Line{
			{Name: "one", Points: []chart.Point{{1, 5, 4, 6}, {10, 7, 7, 7}, {1000, 0, 0, 0}}},
			{Name: "two & more", Points: []chart.Point{{1, 0, 0, 0}}},
		},
	}
	var b strings.Builder
	if err := c.Write(&b); err != nil {
		t.Fatal(err)
	}
	texts, paths := read(t, b.String())
	for _, want := range []string{"a < b & c", "one", "two & more", "here", "1000"} {
		if !strings.Contains(texts, want) {
			t.Errorf("the picture does not say %q: %s", want, texts)
		}
	}
	if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") || paths < 2 {
		t.Errorf("the picture has no place for a value: %s", b.String())
	}
}

// read returns the texts of a document, and how many paths it has.
func read(t *testing.T, document string) (texts string, paths int) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(document))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts, paths
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "path" {
				paths++
			}
		case xml.CharData:
			texts += string(token) + " "
		}
	}
}
