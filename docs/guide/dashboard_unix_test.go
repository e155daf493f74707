//go:build linux || darwin

package guide_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/metrics"
)

// rare are the series that exist only after the backend or a worker has not
// answered for seconds. The catalogue has them.
var rare = []string{"mega_lock_release_failures_total", "mega_lock_renew_failures_total", "mega_worker_scrape_failures_total"}

// The dashboard and the alerts use series that a real program has.
func TestEverySeriesOfTheDashboardIsInAScrape(t *testing.T) {
	catalogue := slices.Concat(metrics.Catalogue(), metrics.WorkerCatalogue())
	missing := slices.DeleteFunc(asked(t), func(name string) bool {
		return slices.Contains(rare, name) && slices.ContainsFunc(catalogue, func(s metrics.Series) bool { return s.Name == name })
	})
	c := newConsole(t, "eventful", "name: shop\ncluster: {workers: 2}\nlock: {ttl: 1s}\nlog: {level: info, format: text}\n")
	address := regexp.MustCompile(`apps +web +(http://\S+)`)
	for !address.MatchString(c.log()) { // the report comes after the program is ready
		time.Sleep(5 * time.Millisecond)
	}
	answer, err := http.Get(address.FindStringSubmatch(c.log())[1])
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	for began := time.Now(); len(missing) > 0; time.Sleep(20 * time.Millisecond) {
		_, page, err := c.get("/metrics")
		if err != nil {
			t.Fatal(err)
		}
		missing = slices.DeleteFunc(missing, func(name string) bool {
			return strings.Contains(page, "\n"+name+"{") || strings.Contains(page, "\n"+name+" ")
		})
		if time.Since(began) > 30*time.Second {
			t.Fatalf("no scrape has %q\n%s", missing, c.log())
		}
	}
}
