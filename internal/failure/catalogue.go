package failure

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Code is an entry of the catalogue: the meaning of a dotted code, in errors,
// panels and answers. A code keeps its meaning and its exit status for good.
type Code struct {
	Name   string   `json:"code" yaml:"code"`           // "lock.driver_unavailable"
	Exit   int      `json:"exit,omitempty" yaml:"exit"` // the exit status of a boot that it ends; 0 for a code of run time
	Title  string   `json:"title" yaml:"title"`
	Means  string   `json:"means" yaml:"means"`
	Causes []string `json:"causes,omitempty" yaml:"causes"` // the usual ones
	Do     []string `json:"do,omitempty" yaml:"do"`
}

// catalogue is the list of all codes.
//
//go:embed catalogue.yaml
var catalogue []byte

// Codes returns the catalogue, sorted by name: every code that can end a boot,
// and every code of an error at run time.
func Codes() []Code {
	var all []Code
	if err := yaml.Unmarshal(catalogue, &all); err != nil {
		panic(fmt.Sprintf("decode the catalogue of codes: %v", err)) // it is part of the binary, and a test decodes it
	}
	slices.SortFunc(all, func(a, b Code) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Explain returns the entry of a code, in upper or lower case. The error for an
// unknown code names similar codes.
func Explain(code string) (Code, error) {
	code = strings.ToLower(strings.TrimSpace(code))
	all := Codes()
	var names []string
	for _, c := range all {
		if c.Name == code {
			return c, nil
		}
		names = append(names, c.Name)
	}
	if near := related(code, names); len(near) > 0 {
		return Code{}, fmt.Errorf("there is no code %q; there are %s", code, strings.Join(near, ", "))
	}
	return Code{}, fmt.Errorf("there is no code %q", code)
}

// related returns the names that contain the part of code after its first dot, or
// else those that contain the part before it: lock.unreachable finds the codes of
// locks, driver_unavailable the code that ends in it.
func related(code string, names []string) []string {
	_, last, dotted := strings.Cut(code, ".")
	if !dotted {
		last = code
	}
	for _, part := range []string{last, strings.TrimSuffix(code, last)} {
		near := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return part == "" || !strings.Contains(n, part) })
		if len(near) > 0 {
			return near
		}
	}
	return nil
}

// Print writes the entry as text.
func (c Code) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", c.Name, c.Title)
	if c.Exit != 0 {
		fmt.Fprintf(&b, "It ends the program with exit status %d.\n", c.Exit)
	}
	fmt.Fprintf(&b, "\n%s\n", wrap(c.Means, "  "))
	for _, list := range []struct {
		name  string
		lines []string
	}{{"Usual causes", c.Causes}, {"What to do", c.Do}} {
		if len(list.lines) > 0 {
			fmt.Fprintf(&b, "\n%s\n", list.name)
		}
		for _, line := range list.lines {
			fmt.Fprintf(&b, "  • %s\n", strings.TrimLeft(wrap(line, "    "), " "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// wrap breaks a text into lines of at most 80 columns.
func wrap(text, indent string) string {
	const width = 80
	var b strings.Builder
	at := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case at == 0 || at+1+len(word) > width:
			if at > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(indent + word)
			at = len(indent) + len(word)
		default:
			b.WriteString(" " + word)
			at += 1 + len(word)
		}
	}
	return b.String()
}
