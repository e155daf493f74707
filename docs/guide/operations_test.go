package guide_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/lock"
)

const operationsPage = "10-operations.md"

// operatedEnv makes the test's executable the shop of which a page speaks.
const operatedEnv = "GUIDE_TEST_OPERATED"

func TestMain(m *testing.M) {
	if name := os.Getenv(operatedEnv); name != "" { // its workers, too
		mega.Main(programs()[name])
	}
	if os.Getenv(toolRole) != "" {
		os.Exit(runTool())
	}
	// A child ignores a hangup that its parent ignores, as under nohup.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	os.Exit(m.Run())
}

// programs returns the programs that the test's executable can be.
func programs() map[string]mega.Option {
	return map[string]mega.Option{"operated": operated(), "withWorkers": withWorkers(), "eventful": eventful()}
}

// What 10-operations.md shows.

func operated() mega.Option {
	return mega.App("web",
		mega.Provide(OpenDisk, NewSales),
		mega.Routes(sales),
		mega.Ready("disk", (*Disk).Writable),
		mega.Run("import", importAll),
		mega.Respond("product.stock", stockOf),
	)
}

// Disk is the folder that the shop writes to.
type Disk struct{ dir string }

func OpenDisk() *Disk { return &Disk{"."} }

// Writable returns an error if the folder cannot be written to.
func (d *Disk) Writable(context.Context) error {
	_, err := os.Stat(filepath.Join(d.dir, "full"))
	if err == nil {
		return errors.New("no space left on device")
	}
	return nil
}

// NewSales counts the pieces that are sold.
func NewSales(r prometheus.Registerer) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "shop_sales_total", Help: "Pieces sold."})
	r.MustRegister(c)
	return c
}

func sales(r mega.Router, sold prometheus.Counter) {
	r.Post("/products/{id}/buy", func(ctx *mega.Ctx) error {
		return ctx.Lock.With("product:"+ctx.Param("id"), func(ctx *mega.Ctx) error {
			sold.Inc()
			return ctx.Text(http.StatusOK, "sold")
		})
	})
}

// stockOf is how many there are.
func stockOf(_ *mega.Ctx, product int) (map[string]int, error) {
	return map[string]int{"product": product, "stock": 3}, nil
}

// importAll holds its lock until it is told to end.
func importAll(ctx *mega.Ctx) error {
	err := ctx.Lock.With("import:nightly", func(ctx *mega.Ctx) error {
		<-ctx.Done()
		return nil
	}, lock.Label("feed 7"))
	if errors.Is(err, lock.ErrLost) {
		return nil // an operator took it away, and had his reasons
	}
	return err
}

// The table of the page is the catalogue, in its order.
func TestEveryMetricIsOnThePage(t *testing.T) {
	var b strings.Builder
	b.WriteString("| name | kind | labels | |\n|---|---|---|---|\n")
	for _, s := range slices.Concat(metrics.Catalogue(), metrics.WorkerCatalogue()) {
		labels := "`" + strings.Join(s.Labels, "`, `") + "`"
		if len(s.Labels) == 0 {
			labels = ""
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.Name, s.Kind, labels, s.Help)
	}
	const begin, end = "<!-- metrics -->\n", "<!-- end of metrics -->\n"
	page := read(t, operationsPage)
	before, rest, ok := strings.Cut(page, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("the page has no %s and %s", begin, end)
	}
	current := before + begin + b.String() + end + after
	if *update {
		if err := os.WriteFile(operationsPage, []byte(current), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if page != current {
		t.Error("the table is not that of the metrics: go test ./docs/guide -run Metric -update")
	}
}
