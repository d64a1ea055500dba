package repocheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// A transaction that the library opens is one of internal/bounded's: else a process that is stopped
// in the middle of it keeps what it has locked. The files named here begin none of their own.
func TestTheLibrarysTransactionsAreBounded(t *testing.T) {
	t.Parallel()
	others := map[string]string{
		"pglease/guardedends.go":       "BEGIN travels with the guard, which sets the bounds",
		"pglease/guardedstatements.go": "a savepoint",
		"pglease/jobs/once.go":         "a savepoint",
	}
	fset := token.NewFileSet()
	found := map[string]bool{}
	for _, f := range files(t, ofTheLibrary) {
		tree, err := parser.ParseFile(fset, f.path, f.text, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !begins(call) {
				return true
			}
			found[f.path] = true
			if others[f.path] == "" {
				t.Errorf("%s: begins a transaction; use internal/bounded", fset.Position(call.Pos()))
			}
			return true
		})
	}
	for name := range others {
		if !found[name] {
			t.Errorf("%s begins nothing: take it off the list", name)
		}
	}
}

// ofTheLibrary tells of what users import. Migrations set a bound of their own.
func ofTheLibrary(rel string) bool {
	return strings.HasSuffix(rel, ".go") && !isTest(rel) && !strings.HasPrefix(rel, "pglease/pgleasetest/") &&
		(strings.HasPrefix(rel, "pglease/") || strings.HasPrefix(rel, "reportstore/"))
}

// begins tells whether a call begins a transaction of pgx.
func begins(call *ast.CallExpr) bool {
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	if x, ok := fun.X.(*ast.Ident); ok && x.Name == "bounded" {
		return false
	}
	return slices.Contains([]string{"Begin", "BeginTx", "BeginFunc", "BeginTxFunc"}, fun.Sel.Name)
}
