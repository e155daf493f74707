package admin

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/megaframework/mega/internal/variable"
)

// Folders returns the folders of this user's admin sockets, the preferred one
// first. A process uses the first one that works. A search reads all of them,
// because a service and a shell of one user seldom have the same variables.
func Folders(environ []string) (all []string) {
	if dir := variable.Get(environ, "XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		all = append(all, filepath.Join(dir, "mega"))
	}
	temp := variable.Get(environ, "TMPDIR")
	if !filepath.IsAbs(temp) {
		temp = os.TempDir()
	}
	return append(all, filepath.Join(temp, tempFolder+strconv.Itoa(os.Geteuid())))
}

// tempFolder, followed by the number of a user, is the name of that user's
// folder in the temporary folder, where every user can create one.
const tempFolder = "mega-"

// fileNameOf returns name as a part of a file name: other characters than letters,
// digits, - and _ are replaced, and the length is bounded.
func fileNameOf(name string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_':
			return r
		}
		return '_'
	}, name)
	return clean[:min(len(clean), 40)]
}
