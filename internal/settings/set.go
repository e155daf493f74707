package settings

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/mask"
)

// keyLetters matches the start of a text that may be a key.
var keyLetters = regexp.MustCompile(`^[A-Za-z0-9_.*-]*`)

// readSet returns the layer of the command line: arguments key=value, in which
// a later one replaces an earlier one. An empty text after the = sets the key
// to nothing. A key in Flags has that flag as its origin.
func (sc *schema) readSet(s Source) *layer {
	last := map[string]int{}
	for i, arg := range s.Set {
		key, _, _ := strings.Cut(arg, "=")
		last[key] = i
	}
	l := newLayer()
	for i, arg := range s.Set {
		key, text, ok := strings.Cut(arg, "=")
		if last[key] != i {
			continue
		}
		o := Origin{Layer: LayerSet, Name: key}
		if start := keyLetters.FindString(key); start != key || key == "" { // the rest may be a value, and a secret
			o.Name = start + "…"
			l.problem(Problem{Code: "config.syntax", Origin: o, Text: "is not key=value", Hint: "write --set key=value"})
			continue
		}
		if !ok {
			l.problem(Problem{Code: "config.syntax", Origin: o, Text: "has no value", Hint: "write --set key=value"})
			continue
		}
		if flag, ok := s.Flags[key]; ok {
			o = Origin{Layer: LayerCommand, Name: flag}
		}
		sc.putArgument(l, key, text, o, s.Private)
	}
	return l
}

func (sc *schema) putArgument(l *layer, key, text string, o Origin, private bool) {
	f, ok := sc.find(key)
	if !ok || strings.Contains(key, "*") {
		l.problem(sc.unknownKey(key, o))
		return
	}
	v := f.parse(text)
	if !private && f.hasCredential(v) {
		l.problem(Problem{
			Code: "config.secret_on_command_line", Key: key, Origin: o,
			Text: "all users of this machine can read a secret on a command line",
			Hint: "set " + EnvName(key) + ", or the key in a file",
		})
		return
	}
	l.put(f, key, v, o)
}

// hasCredential reports whether v contains a credential. A user name and the other
// values of a query are masked, but may stand on a command line.
func (f field) hasCredential(v Value) bool {
	if f.Type == reflect.TypeFor[config.Secret]() {
		return v.Text != ""
	}
	return slices.ContainsFunc(append(v.list, v.Text), func(text string) bool { return len(mask.Credentials(text)) > 0 })
}

// unknownKey returns the problem for an unknown key, with the most similar key.
func (sc *schema) unknownKey(key string, o Origin) Problem {
	if app, ok := sc.unknownAppIn(key); ok {
		return sc.unknownApp(app, o)
	}
	p := Problem{Code: "config.unknown_key", Origin: o, Text: fmt.Sprintf("unknown key %s", mask.Quote(key))}
	if one := sc.example(key); one != "" {
		p.Hint = "it is a section; one of its keys is " + one
	} else if best := sc.nearestKey(key); best != "" {
		p.Hint = "did you mean " + best + "?"
	}
	return p
}

// unknownAppIn returns the app in a key if the program does not have that app.
func (sc *schema) unknownAppIn(key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, "apps.")
	app, _, _ := strings.Cut(rest, ".")
	return app, ok && ValidName(app) && sc.root.parts["apps"].parts[app] == nil
}
