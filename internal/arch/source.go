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

// LocalPaths finds paths in a text that mean something on one machine alone.
func LocalPaths(file, text string) (broken []string) {
	for i, line := range strings.Split(text, "\n") {
		for _, m := range localPath.FindAllStringSubmatch(line, -1) {
			broken = append(broken, fmt.Sprintf("%s:%d: %s is a path of one machine", file, i+1, m[1]))
		}
	}
	return broken
}

// Unconditional refuses two things in a Go file that let code run, or not run,
// behind its reader's back: func init, because importing is not configuring,
// and tests that skip, because a check that does not run is no check.
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
