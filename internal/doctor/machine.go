package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"

	"github.com/megaframework/mega/internal/admin"
)

// machineChecks returns the checks of the machine that a program runs on.
func machineChecks(environ []string) []check {
	return []check{
		{"open files", func(context.Context) Finding { return openFilesFinding(fileLimit()) }},
		{"admin socket", func(ctx context.Context) Finding { return adminSocketFinding(ctx, environ) }},
		{"processors", func(context.Context) Finding { return processorsFinding(runtime.GOMAXPROCS(0), os.DirFS("/")) }},
	}
}

// fewFiles is a limit that a busy server reaches: each connection is a file.
const fewFiles = 4096

// openFilesFinding returns the finding about the limit of open files, if it is known.
func openFilesFinding(limit uint64, known bool) Finding {
	switch {
	case !known:
		return passed("this system has no limit")
	case limit < fewFiles:
		return Finding{Verdict: Warn, Text: fmt.Sprintf("at most %d, and each connection is one", limit), Action: fmt.Sprintf("ulimit -n %d, or LimitNOFILE= of the service", 16*fewFiles)}
	}
	return passed("at most %d", limit)
}

// adminSocketFinding opens an admin socket and closes it again.
func adminSocketFinding(ctx context.Context, environ []string) Finding {
	s, err := admin.Open(admin.Process{
		Info: admin.Info{Name: "doctor", PID: os.Getpid()}, Log: slog.New(slog.DiscardHandler),
	}, admin.Folders(environ))
	if err != nil {
		return Finding{
			Verdict: Warn, Text: "the program cannot be operated while it runs: " + err.Error(),
			Action: "give it a folder of its own: XDG_RUNTIME_DIR",
		}
	}
	return passed("can be opened in %s", path.Dir(s.Path())).withCleanup(s.Close(ctx))
}

// processorsFinding compares the number of processors that the program uses with the
// limit of its control group.
func processorsFinding(uses int, root fs.FS) Finding {
	limit := cpuLimit(root)
	switch allowed := int(math.Ceil(limit)); {
	case limit == 0:
		return passed("%d in use", uses)
	case uses > allowed:
		return Finding{
			Verdict: Warn, Text: fmt.Sprintf("%d in use, but the control group allows %v: the program is made to stand still", uses, limit),
			Action: fmt.Sprintf("unset GOMAXPROCS, or set it to %d", allowed),
		}
	}
	return passed("%d in use, of %v that the control group allows", uses, limit)
}

// cpuLimit returns the number of processors that the control group of the
// process and its parents allow, or 0 without a limit.
func cpuLimit(root fs.FS) (least float64) {
	groups, _ := fs.ReadFile(root, "proc/self/cgroup") // without the file there is no limit
	for line := range strings.Lines(string(groups)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		for at := group; ok; at = path.Dir(at) {
			if q := quota(root, path.Join("sys/fs/cgroup", at, "cpu.max")); q > 0 && (least == 0 || q < least) {
				least = q
			}
			ok = at != "." && at != ""
		}
	}
	return least
}

// quota returns the number of processors in a cpu.max file, or 0 without a limit.
func quota(root fs.FS, file string) float64 {
	text, _ := fs.ReadFile(root, file) // the root group has no such file
	f := strings.Fields(string(text))
	if len(f) != 2 {
		return 0
	}
	quota, err := strconv.ParseFloat(f[0], 64) // "max" is no limit
	period, err2 := strconv.ParseFloat(f[1], 64)
	if err != nil || err2 != nil || period <= 0 {
		return 0
	}
	return quota / period
}
