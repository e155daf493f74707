package listen

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/settings"
)

// Certificates are the certificates of a listener, one for each of its apps that
// has one. A nil Certificates is a listener without TLS.
type Certificates struct {
	files   []files
	current atomic.Pointer[[]tls.Certificate]
}

// files are the files of the certificate of an app.
type files struct{ app, cert, key string }

// NewCertificates returns the certificates of the apps of one listener, which
// Read has to read, or nil if none of them has one.
func NewCertificates(c *settings.Config, apps ...string) *Certificates {
	var s Certificates
	for _, app := range apps {
		if f := filesOf(c, app); f.cert != "" {
			s.files = append(s.files, f)
		}
	}
	if len(s.files) == 0 {
		return nil
	}
	return &s
}

// LoadCertificates reads the certificates of the apps of one listener, as Read
// does. It returns nil if none of them has one.
func LoadCertificates(c *settings.Config, kept *settings.Files, apps ...string) (*Certificates, error) {
	s := NewCertificates(c, apps...)
	apply, err := s.Read(kept, nil)
	if err != nil {
		bad, _ := errors.AsType[*fileError](err) // Read returns no other error
		return nil, bad.failure(c)
	}
	apply()
	return s, nil
}

// Read reads the files, and returns a function that makes the listener use
// them for new connections, and returns the files of the certificates that it
// replaced by others. After an error the certificates are unchanged. Files that
// kept contains come from there; Read adds all others to kept, which may be nil.
//
// A certificate whose keys are among changes stays until a restart, also if its
// files were removed. Its new files are only checked.
func (s *Certificates) Read(kept *settings.Files, changes []config.Change) (apply func() (replaced []string), err error) {
	if s == nil {
		return func() []string { return nil }, nil
	}
	before := s.current.Load()
	var all []tls.Certificate
	for i, f := range s.files {
		next, changed := f.after(changes)
		pair, err := next.read(kept)
		if err != nil {
			return nil, &fileError{f.app, err}
		}
		if changed {
			pair = (*before)[i]
		}
		all = append(all, pair)
	}
	return func() (replaced []string) {
		before := s.current.Swap(&all)
		for i, f := range s.files {
			if before != nil && !slices.EqualFunc((*before)[i].Certificate, all[i].Certificate, bytes.Equal) {
				replaced = append(replaced, f.cert)
			}
		}
		return replaced
	}, nil
}

// RecordCertificate reads the certificate of an app into kept. If its keys are among
// changes, it reads the new files, for workers of a later generation.
func RecordCertificate(c *settings.Config, app string, changes []config.Change, kept *settings.Files) error {
	f := filesOf(c, app)
	next, changed := f.after(changes)
	if changed && (f.cert == next.cert || f.key == next.key) {
		kept = nil // kept has one content for each path, and already has the one in use
	}
	if _, err := next.read(kept); err != nil {
		return &fileError{app, err}
	}
	return nil
}

func filesOf(c *settings.Config, app string) files {
	of := c.Apps[app].TLS
	return files{app, of.Cert, of.Key}
}

// after returns the files that the configuration names after changes, and reports
// whether these are others.
func (f files) after(changes []config.Change) (next files, changed bool) {
	next = f
	for _, c := range changes {
		switch c.Key {
		case f.setting("cert"):
			next.cert = c.New
		case f.setting("key"):
			next.key = c.New
		}
	}
	return next, next != f
}

// beginCertificate is the first line of a certificate in PEM.
const beginCertificate = "-----BEGIN CERTIFICATE-----"

func (f files) setting(name string) string { return "apps." + f.app + ".tls." + name }

// read reads the certificate. It returns none for an app without one.
func (f files) read(kept *settings.Files) (tls.Certificate, error) {
	if f.cert == "" {
		return tls.Certificate{}, nil
	}
	texts, have := kept.Attached(f.cert, f.key)
	if !have {
		var err error
		if texts, err = kept.Attach(f.cert, f.key); err != nil {
			return tls.Certificate{}, err
		}
	}
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	if err == nil && bytes.Count(texts[0], []byte(beginCertificate)) > len(pair.Certificate) {
		err = fmt.Errorf("%s contains an incomplete certificate after the first one", f.cert) // X509KeyPair ignores it
	}
	// A kept certificate may have expired since: other workers serve with it.
	if err == nil && !have && time.Now().After(pair.Leaf.NotAfter) {
		err = fmt.Errorf("the certificate expired on %s", pair.Leaf.NotAfter.Format(time.DateOnly))
	}
	return pair, err
}

// fileError is the error of an app's certificate.
type fileError struct {
	app string
	err error
}

func (e *fileError) Error() string {
	return fmt.Sprintf("read the certificate of the app %s: %v", e.app, strings.TrimPrefix(e.err.Error(), "tls: "))
}

func (e *fileError) Unwrap() error { return e.err }

func (e *fileError) failure(c *settings.Config) error {
	cert, key := files{app: e.app}.setting("cert"), files{app: e.app}.setting("key")
	return &failure.Failure{
		Code: "app.bad_certificate", Exit: failure.ExitConfig, Cause: e.err,
		Text:    fmt.Sprintf("Cannot use the certificate of the app %q.", e.app),
		Facts:   []failure.Fact{failure.Setting(c, cert), failure.Setting(c, key)},
		Actions: failure.Actions("Repair the files", "the cause describes the problem", "Serve HTTP instead", "remove "+cert+" and "+key),
	}
}

// listener returns the listener of net/http.
func (s *Certificates) listener(l net.Listener) net.Listener {
	if s == nil {
		return l
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12,
		// The state of a connection is that of one request (conn), which HTTP/2
		// does not have.
		NextProtos:     []string{"http/1.1"},
		GetCertificate: s.certificate,
	})
}

// certificate returns the certificate for the host that a client asks for, or
// the first one.
func (s *Certificates) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	all := *s.current.Load()
	for i := range all {
		if hello.SupportsCertificate(&all[i]) == nil {
			return &all[i], nil
		}
	}
	return &all[0], nil
}

// Leaves returns the certificates of the apps, without their chains.
func (s *Certificates) Leaves() (all []*x509.Certificate) {
	if s == nil {
		return nil
	}
	for _, c := range *s.current.Load() {
		all = append(all, c.Leaf)
	}
	return all
}

// URL returns the URL of a listen address, as seen from this machine.
func (s *Certificates) URL(addr string) string {
	url := URL(addr)
	if s == nil {
		return url
	}
	return "https" + strings.TrimPrefix(url, "http")
}
