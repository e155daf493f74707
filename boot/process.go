package boot

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	redislog "github.com/redis/go-redis/v9/logging"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/internal/systemd"
	"github.com/megaframework/mega/internal/variable"
	"github.com/megaframework/mega/internal/workers"
)

// OwnProcess prepares a process that belongs to the program alone, once, and
// returns its environment. It keeps client libraries from writing to standard
// error: their messages are returned as errors, and the caller reports them. It
// also removes the variables of the descriptors that a supervisor has passed,
// since they are not for child processes, and in a process that a worker has
// started the other variables of that worker.
func OwnProcess() (environ []string) {
	redislog.Disable()
	environ = os.Environ()
	names := slices.Concat(workers.Descriptors(), systemd.Variables())
	if !workers.Supervised(environ) {
		environ, names = workers.Without(environ), append(names, workers.Variables()...)
	}
	for _, name := range names {
		_ = os.Unsetenv(name) // it has a name
	}
	return environ
}

// injectorLog returns the logger of the injector: none, unless Trace contains
// plan.TraceFx. The injector runs before there is a configuration, and so has a
// separate plain log.
func (p Process) injectorLog() fx.Option {
	if !p.traces() {
		return fx.NopLogger
	}
	return fx.WithLogger(func() fxevent.Logger {
		return &fxevent.SlogLogger{Logger: slog.New(slog.NewTextHandler(p.Stderr, nil)).With("trace", plan.TraceFx)}
	})
}

// worker returns the number of a worker, from 1, or 0 in a process that is no
// worker.
func (p Process) worker() int {
	n, _ := strconv.Atoi(variable.Get(p.Environ, "MEGA_WORKER_ID")) // the supervisor has written it
	return max(n, 0)
}

// isWorker reports whether a supervisor started the process. The supervisor
// sets MEGA_WORKER_ variables for its workers.
func (p Process) isWorker() bool {
	return slices.ContainsFunc(p.Environ, func(kv string) bool { return strings.HasPrefix(kv, "MEGA_WORKER_") })
}

// executable returns the path of the file that new workers run. If dir, the working
// folder, has a symbolic link in its name, that is the path by which this process was
// started, with its links: a link that is switched to another release leads to the
// executable as to the folder. Otherwise the path has no links either, so that no
// worker runs the executable of one release with the files of another.
func (p Process) executable(dir string) (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	if physical, err := filepath.EvalSymlinks(path); err == nil { // Linux has none here, other systems do
		path = physical
	}
	if named := p.startedAs(dir); isSameFile(named, path) { // else another program has this name
		return named, nil
	}
	return path, nil
}

// startedAs returns the path by which this process was started, or "" if dir has no
// symbolic link in its name, or the path is not known.
func (p Process) startedAs(dir string) string {
	physical, err := filepath.EvalSymlinks(dir)
	if err != nil || physical == filepath.Clean(dir) || len(p.Args) == 0 {
		return ""
	}
	path, err := exec.LookPath(p.Args[0])
	if err != nil {
		return ""
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return path
}

func isSameFile(a, b string) bool {
	first, errFirst := os.Stat(a)
	second, errSecond := os.Stat(b)
	return errFirst == nil && errSecond == nil && os.SameFile(first, second)
}

// args returns the arguments of the workers, which are the arguments of this
// process.
func (p Process) args(path string) []string {
	if len(p.Args) == 0 {
		return []string{path}
	}
	return slices.Clone(p.Args)
}

// report writes the report: as text if people read the log, otherwise as one
// record. The warnings are separate records then, so that a search finds them.
func (p Process) report(r *Report, c *settings.Config, log *slog.Logger) {
	if logging.Readable(p.Stderr, c) {
		_, _ = io.WriteString(p.Stderr, "\n"+r.Text(plan.Paint{Colours: plain.Colours(p.Stderr)}, p.Verbose)+"\n") // the program runs without a report, too
		return
	}
	p.warn(r, log)
	log.LogAttrs(context.Background(), slog.LevelInfo, "boot.report", slog.Any("report", r))
}

// warn logs the warnings of the report.
func (p Process) warn(r *Report, log *slog.Logger) {
	if r.Doubt != "" {
		log.Warn("config: " + r.Doubt)
	}
	for _, d := range []plan.Decision{r.Lock, r.Bus, r.Limit} {
		for _, warning := range d.Warnings {
			log.Warn(d.Component+": "+warning, "driver", d.Chosen)
		}
	}
}
