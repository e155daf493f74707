// Package variable reads variables of an environment in the form of os.Environ.
package variable

import "strings"

// Get returns the last value of a variable, which is the one that counts, or "".
func Get(environ []string, name string) (value string) {
	for _, kv := range environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}
