package admin

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Folders are where the admin sockets of this user may be, the preferred one
// first: a process takes the first that it can use, and who looks for it looks
// in all, since a service and a shell of one user seldom have the same
// variables.
func Folders(environ []string) (all []string) {
	if dir := lookup(environ, "XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		all = append(all, filepath.Join(dir, "mega"))
	}
	temp := lookup(environ, "TMPDIR")
	if !filepath.IsAbs(temp) {
		temp = os.TempDir()
	}
	return append(all, filepath.Join(temp, tempFolder+strconv.Itoa(os.Geteuid())))
}

// tempFolder and the number of a user is the name of that user's folder in the
// temporary folder, where everyone can make one.
const tempFolder = "mega-"

// lookup returns the last value of a variable: that is the one which counts.
func lookup(environ []string, name string) (value string) {
	for _, kv := range environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

// plain replaces what may not stand in a file's name, and bounds it.
func plain(name string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_':
			return r
		}
		return '_'
	}, name)
	return clean[:min(len(clean), 40)]
}
