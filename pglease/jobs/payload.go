package jobs

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// checkPayload refuses what Postgres would: it comes before any SQL, where a failure would end the
// caller's transaction.
func checkPayload(payload []byte) error {
	switch {
	case payload == nil:
		return nil
	case len(payload) > MaxPayloadSize:
		return invalid("the payload has %d bytes, the limit is %d", len(payload), MaxPayloadSize)
	case bytes.IndexByte(payload, 0) >= 0:
		return invalid("the payload contains a NUL")
	case !utf8.Valid(payload):
		return invalid("the payload is not valid UTF-8")
	case !json.Valid(payload):
		return invalid("the payload is not JSON")
	}
	return checkJSON(payload)
}

// checkJSON looks for what is JSON and yet has no place in Postgres: escapes of NUL and of half a
// surrogate pair, and nesting that its parser's stack does not hold. The text is valid JSON.
func checkJSON(text []byte) error {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\':
			n, err := checkEscape(text[i:])
			if err != nil {
				return err
			}
			i += n - 1
		case !quoted && (c == '{' || c == '['):
			depth++
			if depth > MaxPayloadDepth {
				return invalid("the payload is nested deeper than %d levels", MaxPayloadDepth)
			}
		case !quoted && (c == '}' || c == ']'):
			depth--
		}
	}
	return nil
}

// checkEscape returns the length of the escape that text begins with.
func checkEscape(text []byte) (int, error) {
	if text[1] != 'u' {
		return 2, nil
	}
	first := hexRune(text[2:])
	switch {
	case first == 0:
		return 0, invalid(`the payload contains a NUL, as \u0000`)
	case !utf16.IsSurrogate(first):
		return 6, nil
	case len(text) >= 12 && text[6] == '\\' && text[7] == 'u' && utf16.DecodeRune(first, hexRune(text[8:])) != utf8.RuneError:
		return 12, nil
	}
	return 0, invalid("the payload contains half a surrogate pair, as %s", text[:6])
}

func hexRune(digits []byte) rune {
	n, err := strconv.ParseUint(string(digits[:4]), 16, 16)
	if err != nil {
		return utf8.RuneError
	}
	return rune(n)
}
