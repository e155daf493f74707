//go:build linux || darwin

package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// certify writes a certificate with this number, and its key.
func certify(t *testing.T, cert, key string, number int64) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(number), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Only a start, SIGHUP and SIGUSR2 read the files of certificates, as they do
// with the files of the configuration.
func TestReplacedWorkerHasTheCertificateInForce(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certify(t, cert, key, 1)
	c := startWorkers(t, "settings", "2", "MEGA_APPS_MAIN_TLS_CERT="+cert, "MEGA_APPS_MAIN_TLS_KEY="+key)
	address := strings.TrimPrefix(c.await(t, "boot.report", 1)[0].Report.Apps[0].URL, "https://")
	inForce := func(when string, number int64) {
		t.Helper()
		for range 8 { // any worker may accept
			conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) // the test compares the number
			if err != nil {
				t.Fatal(err)
			}
			if got := conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != number {
				t.Errorf("%s: the certificate is number %d, want %d", when, got, number)
			}
			_ = conn.Close() // the handshake was enough
		}
	}
	ready := 2
	replace := func() {
		t.Helper()
		for range 2 {
			kill(t, c.records("worker ready")[ready-2].PID)
			ready++
			c.await(t, "worker ready", ready)
		}
	}
	spoil := func() {
		t.Helper()
		if err := os.WriteFile(key, []byte("half of a key"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spoil()
	replace()
	inForce("after crashes", 1)
	c.signal(t, syscall.SIGHUP)
	c.await(t, "configuration reload refused", 1)
	certify(t, cert, key, 2)
	c.signal(t, syscall.SIGHUP)
	c.await(t, "certificate replaced", 2)
	inForce("after SIGHUP", 2)
	spoil()
	replace()
	inForce("after SIGHUP and crashes", 2)
	certify(t, cert, key, 3)
	c.signal(t, syscall.SIGUSR2)
	ready += 2
	c.await(t, "worker restart finished", 1)
	inForce("after SIGUSR2", 3)
	spoil()
	replace()
	inForce("after crashes of the new generation", 3)
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 || len(c.records("worker exited before it was ready")) > 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
	if refused := c.records("configuration reload refused"); len(refused) != 1 || refused[0].Worker != 0 {
		t.Errorf("refused by: %+v", refused)
	}
}
