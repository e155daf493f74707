// Package embedded reads file systems that were made with go:embed.
package embedded

import "io/fs"

// Root returns the only folder at the root of source, or source if its root has
// other entries: go:embed views has the folder views at its root.
func Root(source fs.FS) fs.FS {
	entries, err := fs.ReadDir(source, ".")
	if err != nil || len(entries) != 1 || !entries[0].IsDir() {
		return source
	}
	folder, err := fs.Sub(source, entries[0].Name())
	if err != nil {
		return source
	}
	return folder
}
