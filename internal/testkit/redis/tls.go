package redistest

import (
	"crypto/x509"
	"net"
	"os"
	"testing"

	"github.com/megaframework/mega/internal/testkit/certificate"
)

// StartTLS starts a server that ends with the test. It returns also its address for
// TLS, and the authority of its certificate. Lines of redis.conf follow its own.
func StartTLS(tb testing.TB, c certificate.Certificate, config ...string) (s *Server, addr string, roots *x509.CertPool) {
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
	s = Start(tb, Options{Config: append([]string{
		"tls-port " + port, "tls-cert-file " + certFile, "tls-key-file " + keyFile, "tls-ca-cert-file " + certFile, "tls-auth-clients no",
	}, config...)})
	return s, addr, roots
}
