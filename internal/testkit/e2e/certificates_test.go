//go:build linux || darwin

package e2e_test

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/megaframework/mega/internal/testkit/certificate"
)

// Only a start, SIGHUP and SIGUSR2 read the files of certificates, as they do
// with the files of the configuration.
func TestReplacedWorkerHasTheCertificateInForce(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certificate.Certificate{Number: 1}.WriteTo(t, cert, key)
	c := startWorkers(t, "settings", "2", "MEGA_APPS_MAIN_TLS_CERT="+cert, "MEGA_APPS_MAIN_TLS_KEY="+key)
	address := strings.TrimPrefix(c.await(t, "boot.report", 1)[0].Report.Apps[0].URL, "https://")
	inForce := func(when string, number int64) {
		t.Helper()
		serves(t, address, when, number)
	}
	ready := 2
	spoil := func() {
		t.Helper()
		if err := os.WriteFile(key, []byte("half of a key"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spoil()
	ready = c.replaceBoth(t, ready)
	inForce("after crashes", 1)
	c.signal(t, syscall.SIGHUP)
	c.await(t, "configuration reload refused", 1)
	certificate.Certificate{Number: 2}.WriteTo(t, cert, key)
	c.signal(t, syscall.SIGHUP)
	c.await(t, "certificate replaced", 2)
	inForce("after SIGHUP", 2)
	spoil()
	ready = c.replaceBoth(t, ready)
	inForce("after SIGHUP and crashes", 2)
	certificate.Certificate{Number: 3}.WriteTo(t, cert, key)
	c.signal(t, syscall.SIGUSR2)
	ready += 2
	c.await(t, "worker restart finished", 1)
	inForce("after SIGUSR2", 3)
	spoil()
	c.replaceBoth(t, ready)
	inForce("after crashes of the new generation", 3)
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 || len(c.records("worker exited before it was ready")) > 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
	if refused := c.records("configuration reload refused"); len(refused) != 1 || refused[0].Worker != 0 {
		t.Errorf("refused by: %+v", refused)
	}
}

// Other paths of a certificate apply to workers of the next generation. Until then the
// present ones keep theirs, also if its files were removed.
func TestReplacedWorkersHaveTheirCertificatesAfterItsPathsWereChanged(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "mega.config.yaml")
	paths := func(name string) (cert, key string) {
		return filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	}
	configure := func(name, level string) {
		t.Helper()
		cert, key := paths(name)
		text := fmt.Sprintf("log: {level: %s}\napps: {main: {tls: {cert: %s, key: %s}}}\n", level, cert, key)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name string, number int64) {
		t.Helper()
		cert, key := paths(name)
		certificate.Certificate{Number: number}.WriteTo(t, cert, key)
	}
	spoil := func(name string) {
		t.Helper()
		_, key := paths(name)
		if err := os.Remove(key); err != nil {
			t.Fatal(err)
		}
	}
	write("old", 1)
	configure("old", "info")
	c := startWorkers(t, "settings", "2", "MEGA_CONFIG="+config)
	address := strings.TrimPrefix(c.await(t, "boot.report", 1)[0].Report.Apps[0].URL, "https://")
	ready := 2
	write("old", 2)
	c.signal(t, syscall.SIGHUP)
	c.await(t, "certificate replaced", 2)
	configure("new", "info")
	spoil("old")
	c.signal(t, syscall.SIGHUP)
	c.await(t, "configuration reload refused", 1) // the new files are missing
	write("new", 3)
	configure("new", "debug")
	c.signal(t, syscall.SIGHUP)
	c.await(t, "configuration changed", 2) // the level of the log
	serves(t, address, "after SIGHUP", 2)
	ready = c.replaceBoth(t, ready)
	serves(t, address, "after crashes", 2)
	c.signal(t, syscall.SIGUSR2)
	ready += 2
	c.await(t, "worker restart finished", 1)
	serves(t, address, "after SIGUSR2", 3)
	configure("new", "info")
	c.signal(t, syscall.SIGHUP)
	c.await(t, "configuration changed", 4)
	spoil("new")
	c.replaceBoth(t, ready)
	serves(t, address, "after crashes of the new generation", 3)
	c.signal(t, syscall.SIGHUP)
	c.await(t, "configuration reload refused", 2)
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 || len(c.records("worker exited before it was ready")) > 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
	for _, r := range c.records("configuration reload refused") {
		if r.Worker != 0 {
			t.Errorf("refused by worker %d", r.Worker)
		}
	}
}

// serves checks the number of the certificate of all workers.
func serves(t *testing.T, address, when string, number int64) {
	t.Helper()
	for range 8 { // any worker may accept
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) // the caller knows the number
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != number {
			t.Errorf("%s: the certificate is number %d, want %d", when, got, number)
		}
		_ = conn.Close() // the handshake was enough
	}
}

// The configuration may name a file by a path that begins in the working folder.
func TestCertificatesAreReadFromTheFolderThatHasReplacedTheWorkingFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "release")
	write := func(number int64) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		certificate.Certificate{Number: number}.WriteTo(t, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	}
	write(1)
	t.Chdir(dir)
	c := startWorkers(t, "settings", "2", "MEGA_APPS_MAIN_TLS_CERT=cert.pem", "MEGA_APPS_MAIN_TLS_KEY=key.pem")
	address := strings.TrimPrefix(c.await(t, "boot.report", 1)[0].Report.Apps[0].URL, "https://")
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	write(2)
	c.signal(t, syscall.SIGUSR2)
	c.await(t, "worker restart finished", 1)
	serves(t, address, "after SIGUSR2", 2)
	write(3)
	c.signal(t, syscall.SIGHUP)
	c.await(t, "certificate replaced", 2)
	serves(t, address, "after SIGHUP", 3)
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

// The certificates of many apps are longer together than a frame of the line to a
// worker.
func TestWorkersReceiveLongCertificates(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certificate.Certificate{}.WriteTo(t, cert, key)
	chain, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	comment := strings.Repeat("text before a certificate is ignored\n", 3<<20/37)
	if err := os.WriteFile(cert, append([]byte(comment), chain...), 0o600); err != nil {
		t.Fatal(err)
	}
	c := startWorkers(t, "settings", "2", "MEGA_APPS_MAIN_TLS_CERT="+cert, "MEGA_APPS_MAIN_TLS_KEY="+key)
	ready := c.await(t, "worker ready", 2)
	c.signal(t, syscall.SIGHUP)
	c.await(t, "configuration reloaded without changes", 2)
	kill(t, ready[0].PID)
	c.await(t, "worker ready", 3)
	c.signal(t, syscall.SIGUSR2)
	c.await(t, "worker restart finished", 1)
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}
