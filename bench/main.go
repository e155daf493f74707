// Command bench measures mega's locks and its bus beside the alternatives of
// its users, and beside the floor, the bare cost of the backend. It starts its
// own redis-server and NATS server, prints a table of ratios with their
// targets, and compares them with the results of the last committed run.
//
// README.md describes how each figure is measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/megaframework/mega/bench/internal/buses"
	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/locks"
	"github.com/megaframework/mega/bench/internal/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if lab.Played(ctx, roles()) {
		return
	}
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// roles are the roles of this program when it has started itself, by its first
// argument.
func roles() map[string]lab.Role {
	return map[string]lab.Role{
		rowRole: serveRow, lab.WorkerRole: lab.Work, lab.BrokerRole: lab.ServeBroker, lab.DistantRole: lab.ServeDistant, lab.HubRole: lab.ServeHub,
		locks.EchoRole: locks.ServeEcho, locks.HolderRole: locks.ServeHolder, buses.ListenerRole: buses.ServeListener,
	}
}

// The committed results, and the report on them.
const (
	resultsFile = "results.json"
	reportFile  = "report.html"
)

// errMissed ends the program with a status for a missed target; the table shows
// which.
var errMissed = errors.New("a target was missed")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("row", "", "run only the rows whose name contains `text`")
	quick := flags.Bool("quick", false, "three short repetitions in one process: a look, not a result")
	output := flags.String("o", "", "write the results as JSON to `file` (default results.json and the report on it for a whole run, else nowhere)")
	before := flags.String("before", resultsFile, "compare with the results in `file`")
	page := flags.String("report", "", "write the report of the results in -before to `file`, and measure nothing")
	profile := flags.String("cpuprofile", "", "write a CPU profile of the process that measures the row to `file`, to explain a miss")
	strict := flags.Bool("strict", false, "exit with status 1 if a target was missed")
	if err := flags.Parse(args); err != nil {
		return err
	}

	rows := selected(*only)
	if len(rows) == 0 {
		return fmt.Errorf("no row has %q in its name; the rows are %s", *only, strings.Join(names(allRows()), ", "))
	}
	earlier, err := report.Load(*before)
	if err != nil {
		return err
	}
	if *page != "" {
		return report.SavePage(*page, earlier, pageOutline())
	}
	partial := *only != "" || *quick
	if partial && filepath.Clean(*output) == resultsFile {
		return fmt.Errorf("%s has the results of whole runs; write the results of a part to another file", resultsFile)
	}
	if *profile != "" && len(rows) > 1 {
		return fmt.Errorf("a profile is of one row, and -row %q names %s", *only, strings.Join(names(rows), ", "))
	}
	found, err := measureRows(ctx, rows, order{Quick: *quick, Profile: *profile}, stderr)
	if err != nil {
		return err
	}
	found.Print(stdout, earlier)
	if *output == "" && !partial {
		*output = resultsFile
	}
	if err := found.Save(*output); err != nil {
		return err
	}
	if *output == resultsFile {
		if err := report.SavePage(reportFile, found, pageOutline()); err != nil {
			return err
		}
	}
	if *strict && found.Missed() > 0 {
		return errMissed
	}
	return nil
}

func selected(text string) (rows []row) {
	for _, r := range allRows() {
		if strings.Contains(r.name, text) {
			rows = append(rows, r)
		}
	}
	return rows
}

func names(rows []row) (names []string) {
	for _, r := range rows {
		names = append(names, r.name)
	}
	return names
}
