package config

import (
	"regexp"
	"slices"
	"strings"
)

const prefix = "MEGA_"

// foreign are the variables with our prefix that are not configuration: what
// Kubernetes injects for a service called mega-something, and what test runs
// are scaled with.
var foreign = regexp.MustCompile(`^MEGA_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_.+)?)$|^MEGA_TEST_`)

func inKubernetes(environ []string) bool {
	return slices.ContainsFunc(environ, func(kv string) bool { return strings.HasPrefix(kv, "KUBERNETES_SERVICE_HOST=") })
}

// readEnviron is the layer of the environment. An empty variable counts as
// unset.
func (sc *schema) readEnviron(environ []string) (map[string]Value, Problems) {
	layer := map[string]Value{}
	var problems Problems
	for _, kv := range environ {
		name, text, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, prefix) || text == "" {
			continue
		}
		key, problem := sc.keyOf(name)
		switch {
		case key != "":
			layer[key] = Value{Key: key, Text: text, Origin: Origin{Layer: "env", Name: name}}
		case !foreign.MatchString(name):
			problems = append(problems, problem)
		}
	}
	return layer, problems
}

// keyOf finds the key that a variable sets, or says why there is none.
func (sc *schema) keyOf(name string) (string, Problem) {
	for _, f := range sc.fields {
		key, ok := f.match(name)
		if !ok {
			continue
		}
		if f.Path[0] == "apps" && !slices.Contains(sc.apps, f.nameIn(key)) {
			return "", sc.unknownApp(name, f.nameIn(key))
		}
		return key, Problem{}
	}
	return "", sc.unknownVariable(name)
}

// match returns the key that the variable called name sets, if it is one of
// f's.
func (f Field) match(name string) (string, bool) {
	before, after, named := strings.Cut(EnvName(f.Key()), "*")
	if !named {
		return f.Key(), name == before
	}
	rest, ok := strings.CutPrefix(name, before)
	if !ok {
		return "", false
	}
	word, ok := strings.CutSuffix(rest, after)
	if !ok || word != strings.ToUpper(word) || !ValidName(strings.ToLower(word)) {
		return "", false
	}
	return strings.Replace(f.Key(), "*", strings.ToLower(word), 1), true
}

// nameIn returns the part of key that stands where f has its star.
func (f Field) nameIn(key string) string {
	return strings.Split(key, ".")[slices.Index(f.Path, "*")]
}

func (sc *schema) unknownApp(variable, app string) Problem {
	return Problem{
		Code: "config.unknown_app", Origin: Origin{Layer: "env", Name: variable},
		Text: "this program has no app called " + quote(app),
		Hint: "its apps: " + strings.Join(sc.apps, ", "),
	}
}

func (sc *schema) unknownVariable(name string) Problem {
	p := Problem{
		Code: "config.unknown_key", Origin: Origin{Layer: "env", Name: name},
		Text: "no key has this variable",
	}
	if best := sc.nearestVariable(name); best != "" {
		p.Hint = "did you mean " + best + "?"
	}
	return p
}

// nearestVariable finds the variable that was most likely meant, also where
// the name of the cache or app was left out.
func (sc *schema) nearestVariable(name string) string {
	for _, f := range sc.fields {
		if pattern := EnvName(f.Key()); name == strings.Replace(pattern, "_*", "", 1) {
			return strings.Replace(pattern, "*", strings.ToUpper(sc.likely(f)), 1)
		}
	}
	return nearest(name, sc.variables())
}

// likely is a name to put in the place of f's star.
func (sc *schema) likely(f Field) string {
	if f.Path[0] == "apps" && len(sc.apps) > 0 {
		return sc.apps[0]
	}
	return "main"
}

// variables lists every variable there is, with the likeliest name in the
// place of a star.
func (sc *schema) variables() (names []string) {
	for _, f := range sc.fields {
		name := EnvName(f.Key())
		switch {
		case !strings.Contains(name, "*"):
			names = append(names, name)
		case f.Path[0] == "apps":
			for _, app := range sc.apps {
				names = append(names, strings.Replace(name, "*", strings.ToUpper(app), 1))
			}
		default:
			names = append(names, strings.Replace(name, "*", strings.ToUpper(sc.likely(f)), 1))
		}
	}
	return names
}
