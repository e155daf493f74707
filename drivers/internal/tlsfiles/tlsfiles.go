// Package tlsfiles reads the files of a client's TLS.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// Files are paths of files in PEM. CA has the authorities that replace the system's;
// Cert and Key are the certificate of this process. Each may be "".
type Files struct{ CA, Cert, Key string }

// Config returns base with the contents of the files. It reads the files at each
// call, so a caller that calls it for each connection follows their changes.
func (f Files) Config(base *tls.Config) (*tls.Config, error) {
	if err := Readable(f.CA, f.Cert, f.Key); err != nil {
		return nil, err
	}
	config := base.Clone()
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("read the authority: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("there is no certificate in %s", f.CA)
		}
	}
	if f.Cert != "" || f.Key != "" {
		cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("read the certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return config, nil
}

// Readable returns an error for a path that is not one of a file. A pipe would
// block its reader for ever.
func Readable(paths ...string) error {
	for _, path := range paths {
		switch info, err := os.Stat(path); {
		case path == "":
		case err != nil:
			return fmt.Errorf("read %s: %w", path, err)
		case !info.Mode().IsRegular():
			return fmt.Errorf("read %s: it is not a file", path)
		}
	}
	return nil
}
