package repocheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"testing"
)

// A test waits for what it waits for, not for time to pass. It may sleep in a synctest bubble,
// where that moves the bubble's clock and takes no time, and in a for loop that asks again and
// again, where nothing can be waited for. A bubble is a call of synctest.Test, or of a function of
// the same directory's tests that calls it.
func TestNoTestWaitsForTimeToPass(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	functions := map[string][]*ast.FuncDecl{} // by directory
	for _, f := range files(t, isTest) {
		tree, err := parser.ParseFile(fset, f.path, f.text, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, decl := range tree.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
				functions[path.Dir(f.path)] = append(functions[path.Dir(f.path)], fn)
			}
		}
	}
	for _, fns := range functions {
		bubbles := bubbleMakers(fns)
		for _, fn := range fns {
			for _, call := range sleeps(fn, bubbles) {
				t.Errorf("%s: time.Sleep outside of a synctest bubble and of a polling loop", fset.Position(call.Pos()))
			}
		}
	}
}

const synctestTest = "synctest.Test"

// bubbleMakers returns the names of the functions to which a test may hand what it does in a bubble.
func bubbleMakers(fns []*ast.FuncDecl) map[string]bool {
	makers := map[string]bool{synctestTest: true}
	for _, fn := range fns {
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && callee(call) == synctestTest && fn.Recv == nil {
				makers[fn.Name.Name] = true
			}
			return true
		})
	}
	return makers
}

// sleeps finds the calls of time.Sleep in fn that neither a bubble nor a loop with a condition holds.
func sleeps(fn *ast.FuncDecl, bubbles map[string]bool) []*ast.CallExpr {
	var found []*ast.CallExpr
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt:
			return false
		case *ast.CallExpr:
			if callee(n) == "time.Sleep" {
				found = append(found, n)
			}
			return !bubbles[callee(n)]
		}
		return true
	})
	return found
}

// callee is the name of the function called, with its package where it has one.
func callee(call *ast.CallExpr) string {
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		if x, ok := fun.X.(*ast.Ident); ok {
			return x.Name + "." + fun.Sel.Name
		}
	}
	return ""
}
