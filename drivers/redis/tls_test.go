package redis_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/testkit/certificate"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

// pemFiles are the paths of a certificate, which is its own authority, and its key.
type pemFiles struct{ cert, key string }

// options returns the options of a URL that name the files.
func (f pemFiles) options() string {
	return "?" + url.Values{"tls_ca": {f.cert}, "tls_cert": {f.cert}, "tls_key": {f.key}}.Encode()
}

// startMutual starts a server that requires a client certificate, its own, and
// returns the address for TLS and the files.
func startMutual(t *testing.T, config ...string) (s *redistest.Server, addr string, f pemFiles) {
	t.Helper()
	s, addr, _ = redistest.StartTLS(t, certificate.Certificate{}, append([]string{"tls-auth-clients yes"}, config...)...)
	for name, file := range map[string]*string{"tls-cert-file": &f.cert, "tls-key-file": &f.key} {
		answer, err := s.Do("CONFIG", "GET", name)
		must(t, err)
		*file = answer.([]any)[1].(string)
	}
	return s, addr, f
}

func TestURLNamesTheCertificatesOfTLS(t *testing.T) {
	t.Parallel()
	_, addr, ofServer := startMutual(t)
	_, members, err := net.SplitHostPort(redistest.FreeAddr(t))
	must(t, err)
	slots, cluster, ofCluster := startMutual(t, "cluster-enabled yes", "tls-cluster yes", "cluster-announce-ip 127.0.0.1", "cluster-port "+members)
	_, err = slots.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	must(t, err)
	for _, at := range []string{"rediss://" + addr + ofServer.options(), "rediss-cluster://" + cluster + ofCluster.options()} {
		var l *lock.Locker
		soon(t, "the slots of the Cluster", func() (ok bool) {
			d, err := redis.OpenLock(t.Context(), redis.Config{URL: at})
			if err == nil {
				l, err = lock.New(d, lock.Config{})
			}
			if err != nil && !errors.Is(err, lock.ErrUnavailable) {
				t.Fatal(err)
			}
			return err == nil
		})
		t.Cleanup(func() { dismiss(t, l) })
		must(t, l.With(t.Context(), "k", func(context.Context) error { return nil }))
		client, err := redis.NewClient(at)
		must(t, err)
		must(t, client.Ping(t.Context()).Err())
		must(t, client.Close())
	}
}

// Certificates are replaced while a program runs: the next connection has the new one.
func TestEachConnectionReadsTheCertificatesAgain(t *testing.T) {
	t.Parallel()
	s, addr, before := startMutual(t)
	dir := t.TempDir()
	mine := pemFiles{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	copyTo := func(from pemFiles) {
		for file, to := range map[string]string{from.cert: mine.cert, from.key: mine.key} {
			text, err := os.ReadFile(file)
			must(t, err)
			must(t, os.WriteFile(to, text, 0o600))
		}
	}
	copyTo(before)
	l := member(t, "rediss://"+addr+mine.options())
	must(t, l.With(t.Context(), "k", func(context.Context) error { return nil }))

	var after pemFiles
	after.cert, after.key = certificate.Certificate{Number: 2}.Write(t)
	_, err := s.Do("CONFIG", "SET", "tls-cert-file", after.cert, "tls-key-file", after.key, "tls-ca-cert-file", after.cert)
	must(t, err)
	_, err = s.Do("CLIENT", "KILL", "SKIPME", "yes")
	must(t, err)
	soon(t, "a refusal of the old certificate", func() bool {
		_, err := l.TryAcquire(t.Context(), "other", lock.NoRenew())
		return errors.Is(err, lock.ErrUnavailable)
	})
	copyTo(after)
	soon(t, "the new certificate", func() bool {
		return l.With(t.Context(), "k", func(context.Context) error { return nil }) == nil
	})
}

// A sentinel that does not agree about certificates is not at a wrong address.
func TestTheAdviceForASentinelNamesItsCertificates(t *testing.T) {
	t.Parallel()
	_, addr, f := startMutual(t)
	for options, advice := range map[string]string{
		"?tls_ca=" + f.cert: "tls_cert and tls_key",
		"":                  "check the server's certificate",
	} {
		soon(t, "the advice "+advice, func() bool { // an attempt times out on a busy machine
			_, err := redis.OpenLock(t.Context(), redis.Config{URL: "rediss-sentinel://" + addr + "/m" + options})
			return contains(err, advice)
		})
	}
}

func TestWrongFilesOfTLSAreNamed(t *testing.T) {
	t.Parallel()
	var f pemFiles
	f.cert, f.key = certificate.Certificate{}.Write(t)
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for at, says := range map[string]string{
		"redis://h?tls_ca=" + f.cert:                          "use the scheme rediss",
		"rediss://h?tls_cert=" + f.cert:                       "tls_cert and tls_key need each other",
		"rediss-sentinel://h/m?tls_key=" + f.key:              "tls_cert and tls_key need each other",
		"rediss://h?tls_ca=" + missing:                        missing,
		"rediss://h?tls_ca=" + t.TempDir():                    "it is not a file",
		"rediss-cluster://h?tls_ca=" + f.key:                  "there is no certificate in " + f.key,
		"rediss://h?tls_cert=" + f.key + "&tls_key=" + f.cert: "read the certificate",
		"rediss-sentinel://h/m?tls_cert=a&tls_key=" + missing: "read a: ",
	} {
		_, err := redis.OpenLock(t.Context(), redis.Config{URL: at})
		_, clientErr := redis.NewClient(at)
		for _, err := range []error{err, clientErr} {
			if !errors.Is(err, lock.ErrInvalid) || !contains(err, says) {
				t.Errorf("%s: got %v, want %q", at, err, says)
			}
		}
	}
}
