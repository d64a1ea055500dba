package httpfence_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/httpfence"
)

const prefix = "42:0197a3c2-6c1e-7d6f-8f5b-2f1f6a0c9b11:"

func TestHeaderForm(t *testing.T) {
	t.Parallel()
	for resource, want := range map[string]string{
		"report/2026-07":              "report/2026-07",
		"a:b~c_d.e":                   "a:b~c_d.e",
		"ä ,;\"%41":                   "%C3%A4%20%2C%3B%22%2541",
		strings.Repeat("\u65e5", 170): strings.Repeat("%E6%97%A5", 170),
	} {
		token, err := fence.Parse(prefix + resource)
		if err != nil {
			t.Fatal(err)
		}
		value := httpfence.Format(token)
		if value != prefix+want {
			t.Errorf("%q is written %q, want %q", resource, value, prefix+want)
		}
		if got, err := httpfence.Parse(value); err != nil || got != token {
			t.Errorf("%q is read as %v, %v", value, got, err)
		}
	}
	if got := httpfence.Format(fence.Token{}); got != "" {
		t.Errorf("the zero token is written %q", got)
	}
}

func malformed() []string {
	return []string{
		"", "42", "42:x:y", prefix, "0" + prefix + "r", "-" + prefix + "r", " " + prefix + "r", prefix + "r ", strings.ToUpper(prefix) + "r",
		prefix + "a b", prefix + "ä", prefix + "%c3%a4", prefix + "%C3", prefix + "%41", prefix + "%", prefix + "%4", prefix + "%ZZ", prefix + "a%00", prefix + "a%0A",
		prefix + "r," + prefix + "r", `"` + prefix + `r"`, prefix + strings.Repeat("x", 513),
	}
}

func TestMalformedHeader(t *testing.T) {
	t.Parallel()
	for _, value := range malformed() {
		if got, err := httpfence.Parse(value); !errors.Is(err, httpfence.ErrMalformed) || !errors.Is(err, fence.ErrInvalidToken) {
			t.Errorf("%q: got %v, %v; want ErrMalformed", value, got, err)
		}
	}
	if _, err := httpfence.FromHeader(http.Header{}); !errors.Is(err, httpfence.ErrMissing) {
		t.Errorf("no header: got %v", err)
	}
	twice := http.Header{httpfence.Header: {prefix + "r", prefix + "r"}}
	if _, err := httpfence.FromHeader(twice); !errors.Is(err, httpfence.ErrMalformed) {
		t.Errorf("twice: got %v", err)
	}
}

// Whatever is accepted has one form, and that is fit for a header.
func FuzzParse(f *testing.F) {
	for _, value := range append(malformed(), prefix+"r", prefix+"%C3%A4/x") {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		token, err := httpfence.Parse(value)
		if err != nil {
			return
		}
		if httpfence.Format(token) != value || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' || r == ',' }) {
			t.Errorf("%q was accepted as %v", value, token)
		}
	})
}
