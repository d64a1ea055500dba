package repocheck_test

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// Patterns are put together from parts, so that this file does not match itself.
func joined(parts ...string) *regexp.Regexp { return regexp.MustCompile(strings.Join(parts, "")) }

// What no file may contain: it would be right on one machine only, or is left over from work.
func TestNoFileContains(t *testing.T) {
	t.Parallel()
	forbidden := []struct {
		what string
		text *regexp.Regexp
	}{
		{"a path of one machine", joined(`/(wor`, `k|far`, `m)/`)},
		{"a package registry's host", joined(`https?://[a-z0-9.-]*(np`, `m|pro`, `xy|mav`, `en|deb`, `ian|su`, `m)[a-z0-9.-]*\.(org|com)`)},
		{"a package registry's host", joined(`\b(pro`, `xy|su`, `m)\.go`, `lang\.org|\breg`, `istry\.np`, `mjs\.org|\bdeb\.deb`, `ian\.org|\brepo1?\.mav`, `en\.`)},
		{"the mark of a merge that was not finished", joined(`(?m)^(<{7}|={7}|>{7})( |$)`)},
		{"a note to oneself", joined(`\b(TO`, `DO|FIX`, `ME|XX`, `X)\b`)},
		{"a word on how the text came about", joined(`(?i)co-auth`, `ored-by|\blanguage mo`, `del\b|\bai-gen`, `erated\b`)},
	}
	for _, f := range files(t, isOurs) {
		for _, bad := range forbidden {
			for _, at := range bad.text.FindAllStringIndex(f.text, -1) {
				t.Errorf("%s:%d: %q: %s", f.path, 1+strings.Count(f.text[:at[0]], "\n"), f.text[at[0]:at[1]], bad.what)
			}
		}
	}
}

// go.sum is a list of hashes that the go command writes.
func isOurs(rel string) bool { return path.Base(rel) != "go.sum" }

// A file is small enough to be read in one go. Generated code is read by nobody.
func TestFilesStaySmall(t *testing.T) {
	t.Parallel()
	const limit = 400
	generated := regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	for _, f := range files(t, isSource) {
		if n := len(f.lines()); n > limit && !generated.MatchString(f.text) {
			t.Errorf("%s has %d lines, the limit is %d: give each concept its own file", f.path, n, limit)
		}
	}
}

func isSource(rel string) bool {
	return withExt(".go", ".sql", ".sh", ".js", ".css", ".html", ".tmpl")(rel) || rel == ".ci/run"
}
