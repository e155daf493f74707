package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

// ruleID matches the id of a rule of docs/contract.md. One in quotes is an
// example.
var ruleID = regexp.MustCompile(`(?:^|[^"\w])([AEGLOPSWX][1-9]\d?)\b`)

// KeepsRules reports whether a file is code that keeps the rules of the
// contract: the fronts, the drivers, boot and the packages below it, without their tests
// and suites.
func KeepsRules(file string) bool {
	tree, _, _ := strings.Cut(file, "/")
	switch {
	case !slices.Contains([]string{"lock", "limit", "bus", "drivers", "boot"}, tree) && !strings.HasPrefix(file, "internal/selection/") && !strings.HasPrefix(file, "internal/windows/") && !strings.HasPrefix(file, "internal/shell/"),
		strings.HasPrefix(file, "lock/locktest/"), strings.HasPrefix(file, "limit/limittest/"), strings.HasPrefix(file, "bus/bustest/"), strings.HasPrefix(file, "lock/guard/guardtest/"), strings.HasPrefix(file, "internal/shell/shelltest/"),
		strings.HasSuffix(file, "_test.go"):
		return false
	}
	return path.Ext(file) == ".go" || path.Ext(file) == ".lua"
}

// RulesNamed returns the ids of rules in the comments of a Go or Lua source. It
// skips the package doc, which describes rules and does not keep them.
func RulesNamed(file, text string) (ids []string, err error) {
	comments := luaComments
	if path.Ext(file) == ".go" {
		comments = goComments
	}
	lines, err := comments(file, text)
	for _, line := range lines {
		for _, m := range ruleID.FindAllStringSubmatch(line, -1) {
			ids = append(ids, m[1])
		}
	}
	return ids, err
}

func goComments(file, text string) (comments []string, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	isDoc := func(g *ast.CommentGroup) bool { return g == f.Doc }
	for _, g := range slices.DeleteFunc(f.Comments, isDoc) {
		comments = append(comments, g.Text())
	}
	return comments, nil
}

func luaComments(_, text string) (comments []string, err error) {
	for line := range strings.Lines(text) {
		if _, comment, ok := strings.Cut(line, "--"); ok {
			comments = append(comments, comment)
		}
	}
	return comments, nil
}

// RulesKept compares the ids in the contract with the ids in the code, and
// returns a sentence for each id that only one of them has.
func RulesKept(contract, named []string) (broken []string) {
	for _, id := range contract {
		if !slices.Contains(named, id) {
			broken = append(broken, fmt.Sprintf("no code names rule %s: put // %s at the line that keeps it", id, id))
		}
	}
	for _, id := range named {
		if !slices.Contains(contract, id) {
			broken = append(broken, fmt.Sprintf("code names rule %s, which docs/contract.md does not have", id))
		}
	}
	return broken
}
