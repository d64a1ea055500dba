package plans_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/pglease/pglease/internal/schema"
)

// packages are those that sqlc makes, by the name that they have here.
var packages = map[string]string{
	"lease": "../../pglease/internal/leasedb",
	"fence": "../../pglease/fence/internal/fencedb",
	"jobs":  "../../pglease/jobs/internal/jobsdb",
}

// hot are the statements whose plans are kept.
var hot = map[string][]string{
	"lease": {
		"AcquireFree", "Acquire", "ReleaseUnawaited", "ReleaseUnrung", "Renew", "LeaseStates", "Abandon", "Guard", "GuardLast", "CurrentLease", "Peek",
		"Join", "JoinHeld", "Leave", "Promote", "PruneLine", "Watch", "WatchOne", "Ghosts", "GhostOne", "Beat",
	},
	"fence": {"Claim", "Accept", "CommandByKey"},
	"jobs":  {"Claim", "CompleteAndClaim", "Extend", "CompleteOne", "Complete", "Fail", "PutBack", "Ring", "Unsent", "MarkRelayed"},
}

// A statement is one of a generated package.
type statement struct {
	name   string
	sql    string
	params []string // names as in Go, in the order of their numbers
}

// statements reads those of a package out of its source: the packages are internal to others.
func statements(t *testing.T, dir string) []statement {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.sql.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no generated file in %s: %v", dir, err)
	}
	var list []statement
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		params := arguments(file)
		for constant, text := range constants(t, file) {
			name, ok := strings.CutPrefix(text, "-- name: ")
			if !ok {
				continue
			}
			name, _, _ = strings.Cut(name, " ")
			list = append(list, statement{name: name, sql: marked(t, text), params: params[constant]})
		}
	}
	return list
}

func marked(t *testing.T, text string) string {
	t.Helper()
	s, err := schema.New("")
	if err != nil {
		t.Fatal(err)
	}
	return s.SQL(text)
}

// constants returns the string constants of a file by name.
func constants(t *testing.T, file *ast.File) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, decl := range file.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok || general.Tok != token.CONST {
			continue
		}
		for _, spec := range general.Specs {
			value := spec.(*ast.ValueSpec)
			literal, ok := value.Values[0].(*ast.BasicLit)
			if !ok {
				continue
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			found[value.Names[0].Name] = text
		}
	}
	return found
}

// arguments returns what is passed with each constant: db.Query(ctx, constant, arg.A, arg.B).
func arguments(file *ast.File) map[string][]string {
	found := map[string][]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return true
		}
		constant, ok := call.Args[1].(*ast.Ident)
		if !ok {
			return true
		}
		var names []string
		for _, arg := range call.Args[2:] {
			names = append(names, argumentName(arg))
		}
		found[constant.Name] = names
		return true
	})
	return found
}

func argumentName(arg ast.Expr) string {
	switch arg := arg.(type) {
	case *ast.SelectorExpr:
		return arg.Sel.Name
	case *ast.Ident:
		first := []rune(arg.Name)
		first[0] = unicode.ToUpper(first[0])
		return string(first)
	}
	return ""
}
