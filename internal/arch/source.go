package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// localPath matches an absolute path that only one machine has.
var localPath = regexp.MustCompile("(?:^|[\\s\"'`(=,])(/(?:home|Users|root|tmp|work)/[\\w.-]+)")

// LocalPaths reports paths in a text that exist on one machine only.
func LocalPaths(file, text string) (broken []string) {
	for i, line := range strings.Split(text, "\n") {
		for _, m := range localPath.FindAllStringSubmatch(line, -1) {
			broken = append(broken, fmt.Sprintf("%s:%d: %s is a path of one machine", file, i+1, m[1]))
		}
	}
	return broken
}

// Unconditional reports functions init, because an import must not change the
// program, and tests that skip, because a skipped check goes unnoticed.
func Unconditional(file, text string) (broken []string) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && n.Name.Name == "init" {
				broken = append(broken, fmt.Sprintf("%s: func init", fset.Position(n.Pos())))
			}
		case *ast.SelectorExpr:
			skips := slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, n.Sel.Name)
			if skips && strings.HasSuffix(file, "_test.go") {
				broken = append(broken, fmt.Sprintf("%s: the test skips", fset.Position(n.Pos())))
			}
		}
		return true
	})
	return broken
}
