package fence_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/pglease/pglease/pglease/fence"
)

const (
	someID   = "0197a3c2-6c1e-7d6f-8f5b-2f1f6a0c9b11"
	someText = "42:" + someID + ":report/2026-07"
)

func TestTokenAsText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		someText,
		"1:" + someID + ":a",
		"9223372036854775807:" + someID + ":a:b:c",
		"42:" + someID + ": é ",
		"42:" + someID + ":" + strings.Repeat("x", fence.MaxResourceLength),
	} {
		token, err := fence.Parse(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if token.String() != text || token.IsZero() {
			t.Errorf("%q came back as %q", text, token)
		}
		packed, err := json.Marshal(token)
		var unpacked fence.Token
		if err = errors.Join(err, json.Unmarshal(packed, &unpacked)); err != nil || unpacked != token {
			t.Errorf("%q through JSON: %v, %v", text, unpacked, err)
		}
	}
	token, err := fence.Parse(someText)
	if err != nil || token.Fence() != 42 || token.LeaseID().String() != someID || token.Resource() != "report/2026-07" {
		t.Errorf("got %+v, %v", token, err)
	}
}

func TestParseRefusesAnythingOdd(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty":                "",
		"fence alone":          "42",
		"no resource":          "42:" + someID,
		"empty resource":       "42:" + someID + ":",
		"no fence":             ":" + someID + ":r",
		"zero":                 "0:" + someID + ":r",
		"negative":             "-1:" + someID + ":r",
		"plus":                 "+1:" + someID + ":r",
		"leading zero":         "042:" + someID + ":r",
		"space":                " 42:" + someID + ":r",
		"space after fence":    "42 :" + someID + ":r",
		"underscore":           "4_2:" + someID + ":r",
		"hexadecimal":          "0x2a:" + someID + ":r",
		"other digits":         "٤٢:" + someID + ":r",
		"too large":            "9223372036854775808:" + someID + ":r",
		"upper case":           "42:" + strings.ToUpper(someID) + ":r",
		"braces":               "42:{" + someID + "}:r",
		"no dashes":            "42:" + strings.ReplaceAll(someID, "-", "") + ":r",
		"dashes elsewhere":     "42:0197-a3c26c1e-7d6f-8f5b-2f1f6a0c9b11:r",
		"short lease id":       "42:" + someID[1:] + ":r",
		"zero lease id":        "42:00000000-0000-0000-0000-000000000000:r",
		"lease id of no digit": "42:0197a3c2-6c1e-7d6f-8f5b-2f1f6a0c9b1g:r",
		"signs in the id":      "42:+197a3c2-6c1e-7d6f-8f5b-2f1f6a0c9b11:r",
		"NUL":                  "42:" + someID + ":r\x00",
		"line break":           "42:" + someID + ":r\n",
		"CR and LF":            "42:" + someID + ":r\r\n",
		"tab within":           "42:" + someID + ":a\tb",
		"DEL":                  "42:" + someID + ":a\x7f",
		"NEL":                  "42:" + someID + ":a\u0085",
		"not UTF-8":            "42:" + someID + ":\xff",
		"long resource":        "42:" + someID + ":" + strings.Repeat("x", fence.MaxResourceLength+1),
	} {
		if token, err := fence.Parse(text); !errors.Is(err, fence.ErrInvalidToken) || !token.IsZero() {
			t.Errorf("%s: got %v, %v", name, token, err)
		}
		var token fence.Token
		if err := token.UnmarshalText([]byte(text)); !errors.Is(err, fence.ErrInvalidToken) || !token.IsZero() {
			t.Errorf("%s, unmarshalled: got %v, %v", name, token, err)
		}
	}
	if _, err := (fence.Token{}).MarshalText(); !errors.Is(err, fence.ErrInvalidToken) {
		t.Errorf("zero token: %v", err)
	}
	if text := (fence.Token{}).String(); text != "" {
		t.Errorf("zero token is %q", text)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	a, b := tokenOf(t, "r", 9, 1), tokenOf(t, "r", 10, 2)
	for _, c := range []struct {
		t, u fence.Token
		want int
		err  error
	}{
		{a, b, -1, nil},
		{b, a, 1, nil},
		{a, a, 0, nil},
		{a, tokenOf(t, "s", 9, 1), 0, fence.ErrOtherResource},
		{a, tokenOf(t, "R", 10, 2), 0, fence.ErrOtherResource},
		{a, tokenOf(t, "r", 9, 2), 0, fence.ErrSharedFence},
		{a, fence.Token{}, 0, fence.ErrOtherResource},
	} {
		if got, err := c.t.Compare(c.u); got != c.want || !errors.Is(err, c.err) || (err != nil) != (c.err != nil) {
			t.Errorf("%v and %v: got %d, %v", c.t, c.u, got, err)
		}
	}
}

// Whatever Parse accepts is what String makes of it, and nothing else.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", someText, "1:" + someID + ":a:b", "042:" + someID + ":r", "42:" + strings.ToUpper(someID) + ":r", "42:" + someID + ":\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := fence.Parse(text)
		if err != nil {
			if !errors.Is(err, fence.ErrInvalidToken) || !token.IsZero() {
				t.Errorf("%q: got %v, %v", text, token, err)
			}
			return
		}
		if token.String() != text {
			t.Errorf("%q came back as %q", text, token.String())
		}
		if token.Fence() <= 0 || token.LeaseID() == (fence.LeaseID{}) || fence.CheckResource(token.Resource()) != nil {
			t.Errorf("%q was accepted", text)
		}
		same := token
		if order, err := token.Compare(same); order != 0 || err != nil {
			t.Errorf("compared with itself: %d, %v", order, err)
		}
	})
}
