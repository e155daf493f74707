package boot_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/doctor"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/internal/testkit/certificate"
)

// serial asks a server over a new connection, and returns the number of its
// certificate.
func serial(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the test compares the number
	}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Body.Close() }()
	if w.StatusCode != http.StatusNoContent {
		t.Errorf("got %s", w.Status)
	}
	return w.TLS.PeerCertificates[0].SerialNumber.String()
}

func TestListenerServesTLSAndReadsItsFilesAgain(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certificate.Certificate{Number: 1}.WriteTo(t, cert, key)
	p, out := process("MEGA_APPS_MAIN_TLS_CERT="+cert, "MEGA_APPS_MAIN_TLS_KEY="+key)
	app := mega.App("main", mega.Routes(func(r megactx.Router) { r.Get("/", func(*megactx.Ctx) error { return nil }) }))
	r := start(t, p, app)
	url := r.Report().Apps[0].URL
	if !strings.HasPrefix(url, "https://127.0.0.1:") {
		t.Fatalf("it serves %s", url)
	}
	if got := serial(t, url); got != "1" {
		t.Errorf("the certificate is number %s", got)
	}

	if _, err := r.Reload(); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Contains(text, "certificate replaced") || strings.Count(text, "reloaded without changes") != 1 {
		t.Errorf("a reload without changes is logged as\n%s", text)
	}
	certificate.Certificate{Number: 2}.WriteTo(t, cert, key)
	if _, err := r.Reload(); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Count(text, "reloaded without changes") != 1 || strings.Count(text, "certificate replaced") != 1 || !strings.Contains(text, cert) {
		t.Errorf("a renewed certificate is logged as\n%s", text)
	}
	if got := serial(t, url); got != "2" {
		t.Errorf("after a reload, the certificate is number %s", got)
	}
	if err := os.WriteFile(key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reload(); err == nil {
		t.Error("a bad key is accepted")
	}
	if got := serial(t, url); got != "2" {
		t.Errorf("after a refused reload, the certificate is number %s", got)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
}

// Other paths of a certificate need a restart. Until then the listener keeps its
// certificate, also if its files were removed, and other changes are applied.
func TestChangedPathsOfACertificateDoNotRefuseAReload(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	configure := func(name, timeout string) {
		t.Helper()
		text := fmt.Sprintf("apps: {main: {timeout: %s, tls: {cert: %q, key: %q}}}\n", timeout, file(name+".pem"), file(name+".key"))
		if err := os.WriteFile(file("mega.config.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	certificate.Certificate{Number: 1}.WriteTo(t, file("old.pem"), file("old.key"))
	configure("old", "1m")
	p, _ := process("MEGA_CONFIG=" + file("mega.config.yaml"))
	r := start(t, p, mega.App("main", mega.Routes(func(r megactx.Router) { r.Get("/", func(*megactx.Ctx) error { return nil }) })))
	url := r.Report().Apps[0].URL
	if err := errors.Join(os.Remove(file("old.pem")), os.Remove(file("old.key"))); err != nil {
		t.Fatal(err)
	}
	configure("new", "2m")
	if _, err := r.Reload(); err == nil || !strings.Contains(err.Error(), "new.pem") {
		t.Errorf("a reload without the new files: %v", err)
	}
	certificate.Certificate{Number: 2}.WriteTo(t, file("new.pem"), file("new.key"))
	changes, err := r.Reload()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		if want := c.Key == "apps.main.timeout"; c.Live != want {
			t.Errorf("%s is applied: %v", c.Key, c.Live)
		}
	}
	if len(changes) != 3 {
		t.Errorf("the changes are %+v", changes)
	}
	if got := serial(t, url); got != "1" {
		t.Errorf("the certificate is number %s", got)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
}

func TestBadCertificateStopsTheBoot(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	certificate.Certificate{Number: 1}.WriteTo(t, file("cert"), file("key"))
	certificate.Certificate{Number: 2}.WriteTo(t, file("other"), file("other.key"))
	certificate.Certificate{Number: 3, Expired: true}.WriteTo(t, file("old"), file("old.key"))
	whole, err := os.ReadFile(file("other"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile(file("cert"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file("half"), append(own, whole[:len(whole)/2]...), 0o600); err != nil {
		t.Fatal(err)
	}
	app := mega.App("main", mega.Routes(func(r megactx.Router) { r.Get("/", func(*megactx.Ctx) error { return nil }) }))
	for name, x := range map[string]struct{ cert, key, code string }{
		"half of a chain": {file("half"), file("key"), "app.bad_certificate"},
		"no file":         {file("nowhere"), file("key"), "app.bad_certificate"},
		"another's key":   {file("cert"), file("other.key"), "app.bad_certificate"},
		"no certificate":  {file("key"), file("key"), "app.bad_certificate"},
		"an expired one":  {file("old"), file("old.key"), "app.bad_certificate"},
		"without its key": {file("cert"), "", "config.contradiction"},
	} {
		p, _ := process("MEGA_APPS_MAIN_TLS_CERT="+x.cert, "MEGA_APPS_MAIN_TLS_KEY="+x.key)
		made, err := boot.Plan(p, app)
		if err == nil {
			_, err = doctor.Rehearse(made)
			if err == nil || doctor.CheckCertificates(made.Config) == nil {
				t.Errorf("%s: the dry run or config check accepts it: %v", name, err)
			}
			findings := doctor.Examine(context.Background(), nil, made, nil)
			if !strings.Contains(strings.ToLower(textOf(findings)), "certificate") {
				t.Errorf("%s: doctor does not find it: %+v", name, findings)
			}
			_, err = boot.Start(t.Context(), p, app)
		}
		if f, ok := errors.AsType[*failure.Failure](err); !ok || f.Code != x.code || f.Exit != failure.ExitConfig {
			t.Errorf("%s: got %+v", name, err)
		}
	}
}

func textOf(findings []doctor.Finding) string {
	var all []string
	for _, f := range findings {
		if f.Verdict == doctor.Fail {
			all = append(all, f.Name, f.Text)
		}
	}
	return strings.Join(all, "; ")
}

func TestKeptCertificateStaysInUse(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certificate.Certificate{Number: 1, Expired: true}.WriteTo(t, cert, key)
	p, _ := process("MEGA_APPS_MAIN_TLS_CERT="+cert, "MEGA_APPS_MAIN_TLS_KEY="+key)
	made, err := boot.Plan(p, mega.App("main"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen.LoadCertificates(made.Config, new(settings.Files), "main"); err == nil {
		t.Error("an expired certificate is accepted")
	}
	var kept settings.Files
	if _, err := kept.Attach(cert, key); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(&kept)
	if err != nil {
		t.Fatal(err)
	}
	var passed settings.Files
	if err := json.Unmarshal(text, &passed); err != nil {
		t.Fatal(err)
	}
	s, err := listen.LoadCertificates(made.Config, &passed, "main")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Leaves()[0].SerialNumber.Int64(); got != 1 {
		t.Errorf("the certificate is number %d", got)
	}
}

func TestFailedHandshakeIsNoWarning(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certificate.Certificate{Number: 1}.WriteTo(t, cert, key)
	p, out := process("MEGA_APPS_MAIN_TLS_CERT="+cert, "MEGA_APPS_MAIN_TLS_KEY="+key)
	r := start(t, p, mega.App("main", mega.Routes(func(r megactx.Router) { r.Get("/", func(*megactx.Ctx) error { return nil }) })))
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.Report().Apps[0].URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	logged := regexp.MustCompile(`.*TLS handshake error.*`).FindString(out.String())
	if logged == "" || strings.Contains(logged, "WRN") || strings.Contains(logged, "WARN") {
		t.Errorf("logged %q", logged)
	}
}
