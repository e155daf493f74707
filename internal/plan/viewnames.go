package plan

import (
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/megaframework/mega/internal/request"
)

// CheckViews returns a failure that names each call of Ctx.HTML with a view that no
// app of the program has. It reads the app's source code: the folder of the option
// Views and those below, if the folder still has the files that the program has
// embedded. A program whose source code is elsewhere is not checked.
//
// A name is found if it is a literal, or a constant or variable of its package that
// is declared as a literal. For any other name, rendering the view fails.
func (p *Plan) CheckViews(a Part) error {
	own, err := request.ParseViews(systems(a.Views)...)
	if err != nil {
		return a.failure("boot.views", "Its pages cannot be used.", err)
	}
	var wrong []error
	for _, dir := range slices.Sorted(maps.Keys(a.sourceFolders())) {
		for _, c := range renderCalls(dir) {
			if err := own.Check(c.view); err != nil && !p.hasView(c.view) {
				wrong = append(wrong, fmt.Errorf("%s: view %q: %w", c.site, c.view, err))
			}
		}
	}
	if len(wrong) > 0 {
		return a.failure("boot.views", "A handler names a view that does not exist.", errors.Join(wrong...))
	}
	return nil
}

// hasView reports whether any app has a view: the source code of several apps may
// be in one folder.
func (p *Plan) hasView(name string) bool {
	for _, a := range p.Program.Apps {
		views, err := request.ParseViews(systems(p.Program.Served(a).Views)...)
		if err == nil && views.Check(name) == nil {
			return true
		}
	}
	return false
}

// sourceFolders returns the folders of the options with views that are on this
// disk.
func (p Part) sourceFolders() map[string]bool {
	folders := map[string]bool{}
	for _, f := range p.Views {
		d, ok := f.FS.(disk)
		if !ok {
			d, ok = f.onDisk()
		}
		if ok {
			folders[d.dir] = true
		}
	}
	return folders
}

// renderCall is a call of Ctx.HTML with a name that is known.
type renderCall struct{ site, view string }

// renderCalls finds the calls in the Go files of a folder and of those below it,
// without tests, other modules and folders that the go command ignores. A file that
// cannot be read is left out: the compiler has read it.
func renderCalls(root string) (calls []renderCall) {
	packages := map[string][]sourceFile{}
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && isForeign(path, name) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		site, notBelow := filepath.Rel(root, path)
		if err == nil && notBelow == nil {
			packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], sourceFile{filepath.ToSlash(site), lex(text)})
		}
		return nil
	})
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		files := packages[folder]
		values := literals(files)
		for _, f := range files {
			calls = append(calls, f.renderCalls(values)...)
		}
	}
	return calls
}

// isForeign reports whether a folder has no source code of the app.
func isForeign(path, name string) bool {
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "vendor" || name == "node_modules"
}

type sourceFile struct {
	site   string // its path from the root
	tokens []lexeme
}

type lexeme struct {
	token token.Token
	text  string
	line  int
}

// lex returns the tokens of a Go file, followed by enough empty ones to look ahead.
func lex(text []byte) (all []lexeme) {
	var s scanner.Scanner
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(text))
	s.Init(file, text, func(token.Position, string) {}, 0)
	for {
		at, kind, text := s.Scan()
		if kind == token.EOF {
			return append(all, make([]lexeme, 6)...)
		}
		all = append(all, lexeme{kind, text, file.Line(at)})
	}
}

// matches reports whether the tokens at i are of these kinds.
func (f sourceFile) matches(i int, kinds ...token.Token) bool {
	for n, kind := range kinds {
		if i+n < 0 || i+n >= len(f.tokens) || f.tokens[i+n].token != kind {
			return false
		}
	}
	return true
}

// literals returns the constants and variables of a package that are set to a
// literal where they are declared, by name. A name that a function declares or sets
// too, or whose address it takes, is left out.
func literals(files []sourceFile) map[string]string {
	values, ambiguous := map[string]string{}, []string{}
	for _, f := range files {
		ambiguous = append(ambiguous, f.assignments(values)...)
	}
	for _, name := range ambiguous {
		delete(values, name)
	}
	return values
}

// assignments adds the names that the file sets to a literal outside of functions to
// values, and returns the names that it sets in another way, or whose address it takes.
func (f sourceFile) assignments(values map[string]string) (others []string) {
	depth := 0 // of braces
	for i, t := range f.tokens {
		assigned := f.matches(i, token.IDENT, token.ASSIGN)
		value, isLiteral := f.literal(i+2, token.SEMICOLON)
		switch {
		case t.token == token.LBRACE:
			depth++
		case t.token == token.RBRACE:
			depth--
		case assigned && depth == 0 && isLiteral:
			values[t.text] = value
		case assigned, f.matches(i, token.IDENT, token.DEFINE), f.matches(i, token.IDENT, token.ADD_ASSIGN),
			f.matches(i, token.IDENT, token.IDENT) && f.tokens[i+1].text == "string":
			others = append(others, f.listed(i)...)
		case f.matches(i, token.AND, token.IDENT):
			others = append(others, f.tokens[i+1].text)
		}
	}
	return others
}

// listed returns the name at i with those before it in a list: a, b = f().
func (f sourceFile) listed(i int) []string {
	names := []string{f.tokens[i].text}
	for f.matches(i-2, token.IDENT, token.COMMA) {
		i -= 2
		names = append(names, f.tokens[i].text)
	}
	return names
}

// literal returns the text of a literal that a token follows.
func (f sourceFile) literal(i int, then token.Token) (string, bool) {
	if !f.matches(i, token.STRING, then) {
		return "", false
	}
	text, err := strconv.Unquote(f.tokens[i].text)
	return text, err == nil
}

// renderCalls finds calls of the method HTML on parameters of the type *mega.Ctx.
func (f sourceFile) renderCalls(values map[string]string) (calls []renderCall) {
	contexts := map[string]bool{}
	for i := range f.tokens {
		if f.matches(i, token.IDENT, token.MUL, token.IDENT, token.PERIOD, token.IDENT) && f.tokens[i+4].text == "Ctx" {
			contexts[f.tokens[i].text] = true
		}
	}
	for i := range f.tokens {
		if !f.matches(i, token.IDENT, token.PERIOD, token.IDENT, token.LPAREN) || !contexts[f.tokens[i].text] || f.tokens[i+2].text != "HTML" {
			continue
		}
		at := f.secondArgument(i + 4)
		view, ok := f.literal(at, token.COMMA)
		if !ok && f.matches(at, token.IDENT, token.COMMA) {
			view, ok = values[f.tokens[at].text]
		}
		if ok {
			calls = append(calls, renderCall{fmt.Sprintf("%s:%d", f.site, f.tokens[at].line), view})
		}
	}
	return calls
}

// secondArgument returns the index of the second argument of a call whose first
// one begins at i.
func (f sourceFile) secondArgument(i int) int {
	for depth := 0; i < len(f.tokens); i++ {
		switch f.tokens[i].token {
		case token.LPAREN, token.LBRACK, token.LBRACE:
			depth++
		case token.RPAREN, token.RBRACK, token.RBRACE:
			depth--
		case token.COMMA:
			if depth == 0 {
				return i + 1
			}
		}
	}
	return i
}
