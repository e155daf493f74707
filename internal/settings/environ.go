package settings

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/internal/spelling"
)

const prefix = "MEGA_"

// notConfiguration matches the variables with the MEGA_ prefix that are not
// configuration: the location of the configuration, the variables between the
// processes of a program, the scale of test runs, and the variables that
// Kubernetes injects for a service called mega-something, except one, MEGA_<name>_PORT.
var notConfiguration = regexp.MustCompile(`^MEGA_(CONFIG$|RUN_|WORKER_|TEST_)|^MEGA_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_.+)$`)

// servicePort matches the variable that Kubernetes sets to a link. With a number,
// it is a mistake: an address has the key addr.
var servicePort = regexp.MustCompile(`^MEGA_(.+_)?PORT$`)

// isIgnored reports whether a variable without a key is ignored. Any other one is a
// mistake.
func isIgnored(name, text string) bool {
	return notConfiguration.MatchString(name) || servicePort.MatchString(name) && link.MatchString(text)
}

// environment is the variables of a process. An empty variable counts as unset,
// and the last of several with one name counts.
type environment map[string]string

func newEnvironment(environ []string) environment {
	env := environment{}
	for _, kv := range environ {
		name, text, _ := strings.Cut(kv, "=")
		env[name] = text
	}
	maps.DeleteFunc(env, func(_, text string) bool { return text == "" })
	return env
}

func inKubernetes(environ []string) bool {
	return newEnvironment(environ)["KUBERNETES_SERVICE_HOST"] != ""
}

// injectedAlways matches injected variables that no key may have. A key may
// have a variable that only ends in _PORT.
var injectedAlways = regexp.MustCompile(`_SERVICE_(HOST|PORT(_.+)?)$`)

var link = regexp.MustCompile(`^(tcp|udp|sctp)://`)

// injected reports whether Kubernetes set the variable, although it is the
// variable of a key: for a service mega-mail Kubernetes sets MEGA_MAIL_PORT,
// beside MEGA_MAIL_SERVICE_HOST.
func (env environment) injected(name string) bool {
	service, ok := strings.CutSuffix(name, "_PORT")
	return ok && link.MatchString(env[name]) && env[service+"_SERVICE_HOST"] != ""
}

// readEnviron returns the layer of the environment.
func (sc *schema) readEnviron(env environment) *layer {
	l := newLayer()
	for _, name := range slices.Sorted(maps.Keys(env)) {
		o := Origin{Layer: LayerEnv, Name: name}
		switch {
		case strings.HasPrefix(name, prefix) && !env.injected(name):
			sc.putVariable(l, env[name], o)
		case sc.isLowerCase(name):
			l.problem(lowerCase(o))
		}
	}
	return l
}

// isLowerCase reports whether a name would be the variable of a key in upper
// case. Other variables in lower case belong to other programs.
func (sc *schema) isLowerCase(name string) bool {
	upper := strings.ToUpper(name)
	if !strings.HasPrefix(upper, prefix) || strings.HasPrefix(name, prefix) {
		return false
	}
	_, key := sc.keyOf(upper)
	return key != ""
}

func lowerCase(o Origin) Problem {
	return Problem{
		Code: "config.unknown_key", Origin: o, Text: "variables of keys are in upper case",
		Hint: "write " + strings.ToUpper(o.Name),
	}
}

// putVariable adds the value of the variable that o names.
func (sc *schema) putVariable(l *layer, text string, o Origin) {
	f, key := sc.keyOf(o.Name)
	switch {
	case key != "":
		l.put(f, key, f.parse(text), o)
	case isIgnored(o.Name, text), l.full(): // a suggestion takes time
	default:
		l.problem(sc.unknownVariable(o))
	}
}

// keyOf returns the key that a variable sets, or "" if there is none.
func (sc *schema) keyOf(variable string) (field, string) {
	if key, ok := sc.variable[variable]; ok && !strings.Contains(key, "*") {
		f, _ := sc.find(key)
		return f, key
	}
	for _, f := range sc.fields {
		if key, ok := f.cacheKey(variable); ok {
			return f, key
		}
	}
	return field{}, ""
}

// cacheKey returns the key that a variable sets, if f is a key of all caches and the
// variable belongs to one cache.
func (f field) cacheKey(variable string) (string, bool) {
	before, after, ok := strings.Cut(EnvName(f.Key()), "*")
	if !ok {
		return "", false
	}
	word, ok := between(variable, before, after)
	return strings.Replace(f.Key(), "*", word, 1), ok
}

// between returns the lower-case name between two parts of a variable.
func between(variable, before, after string) (string, bool) {
	rest, ok := strings.CutPrefix(variable, before)
	if !ok {
		return "", false
	}
	word, ok := strings.CutSuffix(rest, after)
	if !ok || word != strings.ToUpper(word) || !ValidName(strings.ToLower(word)) {
		return "", false
	}
	return strings.ToLower(word), true
}

// unknownAppOf returns the name of the app to which a variable would belong, if
// the program had that app.
func (sc *schema) unknownAppOf(variable string) (string, bool) {
	for _, f := range appFields() {
		if app, ok := between(variable, "MEGA_APPS_", "_"+strings.ToUpper(f.Path[0])); ok && !slices.Contains(sc.apps, app) {
			return app, true
		}
	}
	return "", false
}

func (sc *schema) unknownApp(app string, o Origin) Problem {
	p := Problem{
		Code: "config.unknown_app", Origin: o,
		Text: "this program has no app " + mask.Quote(app), Hint: sc.appNames(),
	}
	if best := spelling.Nearest(app, sc.apps); best != "" {
		p.Hint = "did you mean " + best + "? " + p.Hint
	}
	return p
}

// unknownVariable returns the problem for a variable that sets no key.
func (sc *schema) unknownVariable(o Origin) Problem {
	if app, ok := sc.unknownAppOf(o.Name); ok {
		return sc.unknownApp(app, o)
	}
	p := Problem{Code: "config.unknown_key", Origin: o, Text: "no key has this variable"}
	if best := sc.nearestVariable(o.Name); best != "" {
		p.Hint = "did you mean " + best + "?"
	}
	return p
}

// nearestVariable returns the variable with the most similar spelling, also
// where the name of the cache or app, or the word APPS, was left out.
func (sc *schema) nearestVariable(name string) string {
	for _, f := range sc.fields {
		if pattern := EnvName(f.Key()); strings.Contains(pattern, "*") && name == strings.Replace(pattern, "_*", "", 1) {
			return strings.Replace(pattern, "*", "MAIN", 1)
		}
	}
	for _, f := range appFields() {
		key := strings.Join(f.Path, ".")
		if len(sc.apps) > 0 && name == EnvName("apps."+key) {
			return EnvName("apps." + sc.apps[0] + "." + key)
		}
		for _, app := range sc.apps {
			if name == EnvName(app+"."+key) {
				return EnvName("apps." + app + "." + key)
			}
		}
	}
	if addr := strings.TrimSuffix(name, "PORT") + "ADDR"; sc.variable[addr] != "" {
		return addr
	}
	if best := spelling.Nearest(name, sc.variables(name)); best != "" {
		return best
	}
	section, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "_")
	if key := sc.keyOfScheme(strings.ToLower(section)); key != "" {
		return EnvName(key)
	}
	return ""
}

// variables returns every possible variable. The alias of a cache is the one in
// near, or a likely one.
func (sc *schema) variables(near string) (names []string) {
	parts := strings.Split(strings.ToLower(strings.TrimPrefix(near, prefix)), "_")
	for _, f := range sc.fields {
		names = append(names, EnvName(strings.Join(f.aliased(parts), ".")))
	}
	return names
}
