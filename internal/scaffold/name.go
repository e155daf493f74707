package scaffold

import (
	"fmt"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// nameRule is strict since a name becomes part of variables, of configuration keys and of a module path.
var nameRule = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

const maxName = 32

// taken are the names with a meaning for the go command: its patterns, and the
// roots of the standard library: a module of that name would hide its packages.
const taken = "all archive bufio builtin bytes cmd cmp compress container context crypto database debug embed encoding errors " +
	"expvar flag fmt go hash html image index internal io iter log main maps math mime net os path plugin reflect regexp runtime " +
	"slices sort std strconv strings structs sync syscall test testing text time tool unicode unique unsafe uuid vendor weak work"

// devices matches the names of devices on Windows: the go command refuses a module
// path with one of them on every system.
var devices = regexp.MustCompile(`^(aux|con|nul|prn|(com|lpt)[1-9])$`)

// CheckName returns an error that wraps ErrName, with the reason, if name is not
// valid for an application.
func CheckName(name string) error {
	wrong := func(why string) error { return fmt.Errorf("%w: %q %s", ErrName, name, why) }
	switch {
	case name == "":
		return wrong("is empty")
	case !nameRule.MatchString(name):
		return wrong("is not a word of lower-case letters and digits that begins with a letter")
	case len(name) > maxName:
		return wrong(fmt.Sprintf("is longer than %d letters", maxName))
	case token.IsKeyword(name):
		return wrong("is a keyword of Go")
	case slices.Contains([]string{"false", "null", "true"}, name):
		return wrong("is a value of YAML and not a text")
	case name == "service":
		return wrong("would make the variable MEGA_APPS_SERVICE_HOST, which Kubernetes sets")
	case slices.Contains(strings.Fields(taken), name), devices.MatchString(name):
		return wrong("has a meaning for the go command")
	}
	return nil
}
