package repocheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
	"testing"
)

// A promise is as good as the test that is named behind it: every test that a document names is in
// the tree.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark|Example)[A-Z]\w*`)
	there := testFunctions(t)
	named := 0
	for _, f := range files(t, isDocument) {
		for i, line := range f.lines() {
			for _, test := range name.FindAllString(line, -1) {
				named++
				if !there[test] {
					t.Errorf("%s:%d: there is no %s", f.path, i+1, test)
				}
			}
		}
	}
	if named == 0 {
		t.Error("no document names a test: the check checks nothing")
	}
}

// isDocument tells of the documents whose text makes promises: those under docs, and every README.
func isDocument(rel string) bool {
	return path.Base(rel) == "README.md" || (strings.HasPrefix(rel, "docs/") && path.Ext(rel) == ".md")
}

// testFunctions returns the names of all functions in test files, methods left out.
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	there := map[string]bool{}
	fset := token.NewFileSet()
	for _, f := range files(t, isTest) {
		tree, err := parser.ParseFile(fset, f.path, f.text, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, decl := range tree.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				there[fn.Name.Name] = true
			}
		}
	}
	return there
}
