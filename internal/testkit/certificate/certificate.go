// Package certificate writes certificates for tests of TLS.
package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificate describes a certificate. The zero value is valid for 127.0.0.1.
type Certificate struct {
	Number  int64 // by which a test distinguishes certificates
	Expired bool
	Host    string // the only name that it is valid for
}

// Write writes the certificate, which is its own authority, and its key to files
// in PEM that end with the test.
func (c Certificate) Write(tb testing.TB) (certFile, keyFile string) {
	tb.Helper()
	dir := tb.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	c.WriteTo(tb, certFile, keyFile)
	return certFile, keyFile
}

// WriteTo is Write for files that the caller names. It replaces their contents.
func (c Certificate) WriteTo(tb testing.TB, certFile, keyFile string) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := c.template()
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
}

func (c Certificate) template() *x509.Certificate {
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(c.Number), IsCA: true, BasicConstraintsValid: true,
		NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(48 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if c.Expired {
		template.NotAfter = now.Add(-24 * time.Hour)
	}
	if c.Host != "" {
		template.IPAddresses, template.DNSNames = nil, []string{c.Host}
	}
	return template
}
