package boot

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/megaframework/mega/config"
)

// Failures and reports describe a key at the place where the user has
// configured it.

// valueOf returns the value of a key with its origins.
func valueOf(c *config.Config, key string) (config.Value, bool) {
	for _, v := range c.Values() {
		if v.Key == key {
			return v, true
		}
	}
	return config.Value{}, false
}

// asked returns the value of a key, its origin, and the origins that it
// overrides.
func asked(c *config.Config, key string) Fact {
	v, ok := valueOf(c, key)
	if !ok {
		return Fact{Name: "not set", Value: key}
	}
	return Fact{Name: "asked by", Value: fmt.Sprintf("%s = %s  (%s)", v.Key, v.Text, place(v))}
}

// place returns the origin of a value, and the weaker ones that it overrides.
func place(v config.Value) string {
	places := []string{v.Origin.String()}
	for _, below := range v.Shadows {
		places = append(places, below.String())
	}
	return strings.Join(places, ", over ")
}

// put returns the action that sets a key: at its current origin, else in the
// configuration file if there is one, else by its variable.
func put(c *config.Config, key, value string) string {
	switch o := c.Origin(key); o.Layer {
	case config.LayerFile:
		return fmt.Sprintf("%s: %s  in %v", key, value, o)
	case config.LayerProvider:
		return fmt.Sprintf("%s: %s  in %v", key, value, o)
	case config.LayerDotEnv:
		return fmt.Sprintf("%s=%s  in %s:%d", config.EnvName(key), value, o.File, o.Line)
	case config.LayerSet:
		return fmt.Sprintf("--set %s=%s", key, value)
	case config.LayerDefault, "":
		if file := mainFile(c); file != "" {
			return fmt.Sprintf("%s: %s  in %s", key, value, file)
		}
	}
	return config.EnvName(key) + "=" + value
}

// elsewhere returns an example of an address other than the one that has
// failed.
func elsewhere(c *config.Config, key, example string) string {
	if v, ok := valueOf(c, key); ok && v.Text == example {
		return strings.Replace(example, "localhost", "another.host", 1)
	}
	return example
}

// mainFile returns the process's own configuration file, or "" if there is
// none.
func mainFile(c *config.Config) string {
	for _, f := range c.Files() {
		if name := filepath.Base(f.Path); name != ".env" && !strings.HasPrefix(name, "app.config.") {
			return f.Path
		}
	}
	return ""
}

// drop returns the action that unsets a key, and the origin that applies then.
func drop(c *config.Config, key string) string {
	v, _ := valueOf(c, key)
	var how string
	switch o := v.Origin; o.Layer {
	case config.LayerFile, config.LayerProvider:
		how = fmt.Sprintf("remove %s from %v", key, o)
	case config.LayerDotEnv:
		how = fmt.Sprintf("remove %s from %s:%d", config.EnvName(key), o.File, o.Line)
	case config.LayerSet:
		how = "leave out --set " + key
	default:
		how = "unset " + config.EnvName(key)
	}
	if len(v.Shadows) > 0 {
		how += fmt.Sprintf(" (then %v sets it)", v.Shadows[0])
	}
	return how
}

// files returns the configuration files, the weakest first.
func files(c *config.Config) (paths []string) {
	for _, f := range c.Files() {
		paths = append(paths, f.Path)
	}
	return paths
}
