package doctor

import (
	"cmp"
	"context"
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
)

// CheckCertificates reads the certificates of all apps in the configuration.
func CheckCertificates(c *settings.Config) error {
	for _, app := range slices.Sorted(maps.Keys(c.Apps)) {
		if _, err := listen.LoadCertificates(c, nil, app); err != nil {
			return err
		}
	}
	return nil
}

// readCertificates reads the certificates of the apps that listen.
func readCertificates(made *plan.Plan) error {
	for _, a := range made.Program.Runs {
		if _, err := certificatesOf(made, a.Name); err != nil {
			return err
		}
	}
	return nil
}

// certificatesOf returns the certificates of an app that listens, or nil.
func certificatesOf(made *plan.Plan, app string) (*listen.Certificates, error) {
	if !made.Program.Listens(app) {
		return nil, nil
	}
	return listen.LoadCertificates(made.Config, nil, app)
}

// renewBefore is the remaining validity of a certificate below which doctor warns.
const renewBefore = 14 * 24 * time.Hour

// certificateCheck returns a check of the certificate of an app.
func certificateCheck(c *settings.Config, app string) func(context.Context) Finding {
	return func(context.Context) Finding {
		s, err := listen.LoadCertificates(c, nil, app)
		if err != nil {
			return failureFinding("", failure.Of(err))
		}
		leaf := s.Leaves()[0]
		f := passed("for %s, until %s", hostsOf(leaf), leaf.NotAfter.Format(time.DateOnly))
		if time.Until(leaf.NotAfter) < renewBefore {
			f.Verdict, f.Action = Warn, "renew it, and send SIGHUP: mega reads the files again"
		}
		return f
	}
}

// hostsOf returns the names and addresses that a certificate is valid for.
func hostsOf(c *x509.Certificate) string {
	hosts := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return cmp.Or(strings.Join(hosts, ", "), "no host")
}
