package failure

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/internal/settings"
)

// Failures and reports describe a key at the place where the user has
// configured it.

// Setting returns the value of a key, its origin, and the origins that it
// overrides.
func Setting(c *settings.Config, key string) Fact {
	v, ok := c.Value(key)
	if !ok {
		return Fact{Name: "not set", Value: key}
	}
	return Fact{Name: "setting", Value: fmt.Sprintf("%s = %s  (%s)", v.Key, v.Text, origins(v))}
}

// origins returns the origin of a value, and the weaker ones that it overrides.
func origins(v settings.Value) string {
	all := []string{v.Origin.String()}
	for _, below := range v.Shadows {
		all = append(all, below.String())
	}
	return strings.Join(all, ", over ")
}

// Set returns the action that sets a key: at its current origin, else in the
// configuration file if there is one, else by its variable. A value with a
// password never goes on the command line, where settings.Load refuses it.
func Set(c *settings.Config, key, value string) string {
	switch o := c.Origin(key); o.Layer {
	case settings.LayerFile, settings.LayerProvider:
		return fmt.Sprintf("%s: %s  in %v", key, value, o)
	case settings.LayerDotEnv:
		return fmt.Sprintf("%s=%s  in %s:%d", settings.EnvName(key), value, o.File, o.Line)
	case settings.LayerSet:
		if len(mask.Credentials(value)) > 0 {
			return fmt.Sprintf("%s=%s, without --set %s", settings.EnvName(key), value, key)
		}
		return fmt.Sprintf("--set %s=%s", key, value)
	case settings.LayerCommand:
		return o.Name + " " + value
	case settings.LayerDefault, "":
		if file := mainFile(c); file != "" {
			return fmt.Sprintf("%s: %s  in %s", key, value, file)
		}
	}
	return settings.EnvName(key) + "=" + value
}

// SetOther is like Set, with an address that differs from the configured one:
// the example, or the example with another host.
func SetOther(c *settings.Config, key, example string) string {
	if v, ok := c.Value(key); ok && v.Text == example {
		example = strings.Replace(example, "localhost", "another.host", 1)
	}
	return Set(c, key, example)
}

// mainFile returns the process's own configuration file, or "" if there is
// none.
func mainFile(c *settings.Config) string {
	for _, f := range c.Files() {
		if name := filepath.Base(f.Path); name != ".env" && !strings.HasPrefix(name, "app.config.") {
			return f.Path
		}
	}
	return ""
}

// Unset returns the action that unsets a key, and the origin that applies then.
func Unset(c *settings.Config, key string) string {
	v, _ := c.Value(key)
	var how string
	switch o := v.Origin; o.Layer {
	case settings.LayerFile, settings.LayerProvider:
		how = fmt.Sprintf("remove %s from %v", key, o)
	case settings.LayerDotEnv:
		how = fmt.Sprintf("remove %s from %s:%d", settings.EnvName(key), o.File, o.Line)
	case settings.LayerSet:
		how = "leave out --set " + key
	case settings.LayerCommand:
		how = "leave out " + o.Name
	default:
		how = "unset " + settings.EnvName(key)
	}
	if len(v.Shadows) > 0 {
		how += fmt.Sprintf(" (then %v sets it)", v.Shadows[0])
	}
	return how
}

// Actions returns the actions of a Failure from pairs of a title and an action, such
// as "Start it", "redis-server". The actions are aligned.
func Actions(pairs ...string) (actions []string) {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		width = max(width, len(pairs[i]))
	}
	for i := 0; i < len(pairs); i += 2 {
		actions = append(actions, fmt.Sprintf("%-*s  %s", width+1, pairs[i]+":", pairs[i+1]))
	}
	return actions
}
