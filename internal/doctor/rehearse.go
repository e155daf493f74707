// Package doctor explains a start without performing it. Rehearse makes the
// report of a plan and opens nothing; Examine also checks the machine and the
// servers that the program needs.
package doctor

import (
	"errors"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/selection"
)

// Rehearse runs the part of a boot that needs no connection, listener or
// constructor: it reads pages, texts and public files, and lists the routes with
// zero values in place of the results of constructors. The report has the contents of
// a boot report, with addresses as configured. The error is the Failure with which
// the boot would end; the report then still contains the decisions.
func Rehearse(made *plan.Plan) (plan.Report, error) {
	report := reportOf(made)
	for _, step := range []func() error{
		func() error { return made.Refused },
		func() error { return selection.CheckSocket(made.Config, made.Decisions) },
		func() error { return chooseCache(made) },
		func() error { return readCertificates(made) },
		func() error { return readFiles(made) },
		func() error { return readRoutes(made) },
	} {
		if err := step(); err != nil {
			return report, failure.Of(err)
		}
	}
	return report, nil
}

// reportOf returns the report with the configured addresses.
func reportOf(made *plan.Plan) plan.Report {
	report := made.Report()
	report.Rehearsed = true
	if n := made.Config.Cluster.Workers; n > 1 {
		report.Workers = n
	}
	for _, a := range made.Program.Runs {
		app := made.Config.Apps[a.Name]
		if !made.Program.Listens(a.Name) {
			report.Apps = append(report.Apps, plan.Served{App: a.Name, Locales: app.Locales})
			continue
		}
		certificates, _ := certificatesOf(made, a.Name) // Rehearse returns the error
		report.Apps = append(report.Apps, plan.Served{App: a.Name, URL: certificates.URL(string(app.Addr)) + app.Prefix, Host: app.Host, Locales: app.Locales})
	}
	report.Ops = listen.URL(string(made.Config.Ops.Addr))
	return report
}

// chooseCache selects the cache for functions that take one client.
func chooseCache(made *plan.Plan) error {
	if !made.Program.Takes(plan.ClientType()) {
		return nil
	}
	_, err := selection.DefaultCache(made.Config, made.Program.ClientTakers)
	return err
}

// readFiles reads the pages, texts and public files of the apps.
func readFiles(made *plan.Plan) error {
	var errs []error
	for _, a := range made.Program.Runs {
		part := made.Program.Served(a)
		texts, err := made.Texts(part)
		if err == nil {
			_, err = made.Host(part, made.AppInfo(a.Name, texts), texts)
		}
		if err == nil {
			err = made.CheckViews(part)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// readRoutes lists the routes of the apps. Routes that depend on a value of a
// constructor are not checked.
func readRoutes(made *plan.Plan) error {
	_, err := made.Routes()
	if f, ok := errors.AsType[*failure.Failure](err); ok && f.Code == "boot.routes_unknown" {
		return nil
	}
	return err
}
