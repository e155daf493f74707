package redistest

import (
	"crypto/x509"
	"net"
	"os"
	"testing"

	"github.com/megaframework/mega/internal/testkit/certificate"
)

// StartTLS starts a server that ends with the test. It returns also its address for
// TLS, and the authority of its certificate.
func StartTLS(tb testing.TB, c certificate.Certificate) (s *Server, addr string, roots *x509.CertPool) {
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
