package settings

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/megaframework/mega/internal/mask"
)

// assignment is a line of an .env file.
type assignment struct {
	name, text string
	line       int
}

// readsDotEnv reports whether the .env file is a layer.
func (r *reader) readsDotEnv() bool { return r.env == "dev" || r.env == "test" }

// explainMissing adds to the problem of a missing key that an .env file sets it which
// this env does not read: .env, or a file of the env, such as .env.production.
func (r *reader) explainMissing(problems Problems) {
	isMissing := func(p Problem) bool { return p.Code == "config.missing" }
	if r.folder == "" || !slices.ContainsFunc(problems, isMissing) {
		return
	}
	names := []string{".env", ".env." + r.env} // the second one has the last word
	if r.readsDotEnv() {
		names = names[1:]
	}
	for _, name := range names {
		path := filepath.Join(r.folder, name)
		data, err := r.disk.contents(path)
		if err != nil {
			continue // there is none
		}
		all, _ := readDotEnv(string(data))
		for i, p := range problems {
			for _, a := range all {
				if isMissing(p) && a.text != "" && (strings.HasPrefix(p.Hint+";", "set "+a.name+";") || EnvName(p.Key) == a.name) {
					problems[i].Hint = fmt.Sprintf("set %s; %s:%d sets it, but env %s does not read that file", a.name, r.show(path), a.line, r.env)
				}
			}
		}
	}
}

// dotEnv reads an .env file. It ignores variables without the MEGA_ prefix.
func (r *reader) dotEnv(path string) {
	data, err := r.disk.contents(path)
	if err != nil {
		r.problem(Problem{Code: "config.file", Origin: r.origin(path), Text: err.Error()})
		return
	}
	l := newLayer()
	at := func(line int) Origin { return Origin{Layer: LayerDotEnv, File: r.show(path), Line: line} }
	all, faults := readDotEnv(string(data))
	for _, f := range faults {
		l.problem(Problem{Code: f.code, Origin: at(f.line), Text: f.text, Hint: f.hint})
	}
	first := map[string]int{}
	for _, a := range all {
		o := at(a.line)
		o.Name = a.name
		switch {
		case r.schema.isLowerCase(a.name):
			l.problem(lowerCase(o))
		case !strings.HasPrefix(a.name, prefix):
		case a.name == "MEGA_ENV" || a.name == "MEGA_CONFIG":
			l.problem(Problem{Code: "config.too_late", Origin: o, Text: "decides which files are read, so no file can set it", Hint: "export it"})
		case first[a.name] > 0:
			l.problem(Problem{Code: "config.duplicate_key", Origin: o, Text: fmt.Sprintf("is set twice, first in line %d", first[a.name]), Hint: "remove one of them"})
		case a.text != "":
			r.schema.putVariable(l, a.text, o)
		}
		if first[a.name] == 0 {
			first[a.name] = a.line
		}
	}
	r.dotenv = append(r.dotenv, l)
	r.add(l, path)
}

// readDotEnv parses lines of KEY=value. It ignores blanks around both, export
// before the key, and # comments. A value in single quotes is literal. In
// double quotes \n, \r, \t, \", \\ and \$ have their meaning in a shell. Both
// may span several lines. Variables in a value are not expanded, because a $ in
// a password means itself.
func readDotEnv(text string) ([]assignment, []fault) {
	r := dotEnvReader{rest: text}
	for r.rest != "" {
		r.next()
	}
	return r.all, r.faults
}

type dotEnvReader struct {
	rest   string
	line   int // the number of the last line that take returned
	all    []assignment
	faults []fault
}

// take returns the next line and advances.
func (r *dotEnvReader) take() (line string) {
	r.line++
	line, r.rest, _ = strings.Cut(r.rest, "\n")
	return strings.TrimSpace(line)
}

func (r *dotEnvReader) fault(line int, text, hint string) {
	if len(r.faults) < maxFaults {
		r.faults = append(r.faults, fault{code: "config.syntax", line: line, text: text, hint: hint})
	}
}

var beforeValue = regexp.MustCompile(`^[ \t]*(?:export[ \t]+)?([^\s=#'"]+)[ \t]*=[ \t]*`)

func (r *dotEnvReader) next() {
	m := beforeValue.FindStringSubmatch(r.rest)
	if m == nil {
		if line := r.take(); line != "" && line[0] != '#' {
			r.fault(r.line, "is not KEY=value", "write # before a comment")
		}
		return
	}
	a := assignment{name: m[1], line: r.line + 1}
	r.rest = r.rest[len(m[0]):]
	if r.rest == "" || r.rest[0] != '\'' && r.rest[0] != '"' {
		blank := strings.TrimRight(m[0], " \t") != m[0]
		a.text = plainValue(r.take(), blank)
		r.all = append(r.all, a)
		return
	}
	text, used, closed := quotedValue(r.rest)
	r.line += strings.Count(r.rest[:used], "\n")
	r.rest = r.rest[used:]
	after := r.take()
	switch {
	case !closed:
		r.fault(a.line, "the quote after "+mask.Quote(a.name+"=")+" is not closed", "")
	case after != "" && after[0] != '#':
		r.fault(a.line, "text follows the quoted value of "+mask.Quote(a.name), "quote the whole value")
	default:
		a.text = text
		r.all = append(r.all, a)
	}
}

// plainValue returns a value without quotes: the text before a # that follows a
// blank. blank reports whether the value follows one.
func plainValue(value string, blank bool) string {
	for i := range value {
		if value[i] == '#' && blank {
			return strings.TrimSpace(value[:i])
		}
		blank = value[i] == ' ' || value[i] == '\t'
	}
	return value
}

// quotedValue returns the quoted value at the start of text, the number of
// bytes it occupies, and whether its quote is closed. If it is not closed, it
// ends with its line.
func quotedValue(text string) (value string, used int, closed bool) {
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == text[0]:
			return strings.ReplaceAll(b.String(), "\r\n", "\n"), i + 1, true
		case c == '\\' && text[0] == '"' && i+1 < len(text):
			i++
			b.WriteString(unescaped(text[i]))
		default:
			b.WriteByte(c)
		}
	}
	line, _, _ := strings.Cut(text, "\n")
	return "", len(line), false
}

func unescaped(c byte) string {
	switch c {
	case 'n':
		return "\n"
	case 'r':
		return "\r"
	case 't':
		return "\t"
	case '"', '\\', '$':
		return string(c)
	}
	return `\` + string(c)
}
