package request

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/megaframework/mega/internal/embedded"
)

// Public is the set of an app's assets, served at their paths where no route
// matches. They are read once; an ETag saves clients repeated downloads.
type Public struct{ files map[string]asset }

type asset struct {
	name, etag string
	content    []byte
}

// ReadPublic reads every file system. A later file replaces an earlier file at
// the same path. A file system that has only one folder at its root stands for
// that folder.
func ReadPublic(sources ...fs.FS) (*Public, error) {
	p := &Public{files: map[string]asset{}}
	for _, source := range sources {
		if err := p.read(embedded.Root(source)); err != nil {
			return nil, fmt.Errorf("read public files: %w", err)
		}
	}
	return p, nil
}

func (p *Public) read(source fs.FS) error {
	return fs.WalkDir(source, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(source, file)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		p.files["/"+file] = asset{file, `"` + hex.EncodeToString(sum[:8]) + `"`, content}
		return nil
	})
}

// Serve answers with the file at the request's path, if there is one.
func (p *Public) Serve(w http.ResponseWriter, r *http.Request) bool {
	if p == nil || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	file, ok := p.files[r.URL.Path]
	if !ok || strings.HasSuffix(r.URL.Path, "/") || hasEscapedSlash(r.URL) {
		return false
	}
	w.Header().Set("ETag", file.etag)
	w.Header().Set("Cache-Control", "no-cache") // clients revalidate and receive 304
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(w, r, file.name, time.Time{}, bytes.NewReader(file.content))
	return true
}

// hasEscapedSlash reports whether the path of u has a slash that separates no parts. The
// router did not take it for a separator, and so the middleware of a group did not serve
// the request.
func hasEscapedSlash(u *url.URL) bool {
	return u.RawPath != "" && strings.Contains(strings.ToUpper(u.EscapedPath()), "%2F")
}
