package report

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// version is the version of a server or a module that took part in a run.
type version struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// compared are the modules of the contestants.
func compared() []string {
	return []string{
		"github.com/redis/go-redis/v9",
		"github.com/bsm/redislock",
		"github.com/go-redis/redis_rate/v10",
		"github.com/redis/rueidis",
		"github.com/nats-io/nats.go",
		"github.com/ThreeDotsLabs/watermill",
		"golang.org/x/sync",
		"golang.org/x/time",
		"modernc.org/sqlite",
	}
}

// versions returns the versions of the servers and of the compared modules. A
// version that cannot be found is left out.
func versions() (found []version) {
	if v := firstMatch(`v=(\S+)`, output("redis-server", "--version")); v != "" {
		found = append(found, version{"redis-server", v})
	}
	found = append(found, version{"nats-server", server.VERSION})
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return found
	}
	for _, path := range compared() {
		i := slices.IndexFunc(build.Deps, func(m *debug.Module) bool { return m.Path == path })
		if i >= 0 {
			found = append(found, version{path, strings.TrimPrefix(build.Deps[i].Version, "v")})
		}
	}
	return found
}

// processor returns the name of the processor, or "" where it cannot be found.
func processor() string {
	if runtime.GOOS == "darwin" {
		return string(bytes.TrimSpace(output("sysctl", "-n", "machdep.cpu.brand_string")))
	}
	text, _ := os.ReadFile("/proc/cpuinfo")
	return firstMatch(`(?m)^model name\s*:\s*(.+)$`, text)
}

// output returns the standard output of a command, or nil if it fails.
func output(name string, args ...string) []byte {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return nil
	}
	return out
}

// firstMatch returns the first group of the first match, or "".
func firstMatch(pattern string, text []byte) string {
	if m := regexp.MustCompile(pattern).FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return ""
}
