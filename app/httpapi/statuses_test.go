package httpapi

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestStatusesStandInRenderAlone: what speaks HTTP writes a status in the files of render,
// which take it from the outcome table; every other file says what happened, not a number.
func TestStatusesStandInRenderAlone(t *testing.T) {
	// What writes a status: net/http's own call, and those of gin.
	writes := map[string]bool{
		"WriteHeader": true, "WriteHeaderNow": true, "Status": true, "AbortWithStatus": true, "AbortWithStatusJSON": true, "AbortWithError": true,
		"JSON": true, "PureJSON": true, "IndentedJSON": true, "SecureJSON": true, "AsciiJSON": true, "Data": true, "DataFromReader": true,
		"String": true, "HTML": true, "XML": true, "YAML": true, "TOML": true, "ProtoBuf": true, "Render": true, "Redirect": true,
	}
	looked := 0
	for _, pattern := range []string{"*.go", "page/*.go", "../console/*.go", "../page.go"} {
		files, err := filepath.Glob(filepath.FromSlash(pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "render") {
				continue
			}
			looked++
			positions := token.NewFileSet()
			file, err := parser.ParseFile(positions, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			said := func(s *ast.SelectorExpr) {
				t.Errorf("%s: %s writes or names a status", positions.Position(s.Pos()), s.Sel.Name)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if named(n.X, "http") && (strings.HasPrefix(n.Sel.Name, "Status") || n.Sel.Name == "Error") {
						said(n)
					}
				case *ast.CallExpr:
					if s, ok := n.Fun.(*ast.SelectorExpr); ok && writes[s.Sel.Name] && len(n.Args) > 0 && !named(s.X, "slog") {
						said(s)
					}
				}
				return true
			})
		}
	}
	if looked < 15 {
		t.Errorf("looked at %d files", looked)
	}
}

func named(x ast.Expr, name string) bool {
	i, ok := x.(*ast.Ident)
	return ok && i.Name == name
}
