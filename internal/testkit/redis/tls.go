package redistest

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

// Certificate describes the certificate of a server. The zero value is valid for
// 127.0.0.1.
type Certificate struct {
	Expired bool
	Host    string // the only name that it is valid for
}

// Write writes the certificate, which is its own authority, and its key to files
// in PEM that end with the test.
func (c Certificate) Write(tb testing.TB) (certFile, keyFile string) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	now := time.Now()
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), BasicConstraintsValid: true, IsCA: true,
		NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(48 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if c.Expired {
		template.NotAfter = now.Add(-24 * time.Hour)
	}
	if c.Host != "" {
		template.IPAddresses, template.DNSNames = nil, []string{c.Host}
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	dir, text := tb.TempDir(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, text := range map[string][]byte{certFile: text, keyFile: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return certFile, keyFile
}

// StartTLS starts a server that ends with the test. It returns also its address for
// TLS, and the authority of its certificate.
func StartTLS(tb testing.TB, c Certificate) (s *Server, addr string, roots *x509.CertPool) {
	tb.Helper()
	certFile, keyFile := c.Write(tb)
	text, err := os.ReadFile(certFile)
	if err != nil {
		tb.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	addr = FreeAddr(tb)
	_, port, _ := net.SplitHostPort(addr)
	s = Start(tb, Options{Config: []string{
		"tls-port " + port, "tls-cert-file " + certFile, "tls-key-file " + keyFile, "tls-ca-cert-file " + certFile, "tls-auth-clients no",
	}})
	return s, addr, roots
}
