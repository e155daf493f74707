package admin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/megaframework/mega/internal/private"
)

// MainPackage returns the path of the main package of this executable, or "" if
// the linker has not written it.
func MainPackage() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return info.Path
}

// Siblings returns the other processes of this user that run the program called
// name, sorted by number. A process with locks in memory shares them with none of
// these, whatever their driver is. Programs of the same name with another main
// package do not count, nor do processes in env test, of which a test may start
// many.
//
// The socket of a process that was killed refuses the connection, so that it
// never counts. A process that does not answer within a second does not count
// either.
func Siblings(ctx context.Context, folders []string, name string) (all []Info) {
	if !private.Supported {
		return nil
	}
	paths := slices.DeleteFunc(sockets(folders), func(path string) bool {
		owner, pid := socketName(path)
		return owner != "" && owner != fileNameOf(name) || pid == os.Getpid()
	})
	for _, f := range identify(ctx, paths) {
		same := f.Err == nil && f.Info.Name == name && f.Info.Main == MainPackage() && f.Info.PID != os.Getpid()
		if same && f.Info.Env != "test" {
			all = append(all, f.Info)
		}
	}
	slices.SortFunc(all, func(a, b Info) int { return a.PID - b.PID })
	return slices.CompactFunc(all, func(a, b Info) bool { return a.PID == b.PID })
}

// InMemory returns the processes that keep their locks in their own memory.
func InMemory(all []Info) []Info {
	return slices.DeleteFunc(slices.Clone(all), func(i Info) bool { return i.Scope != "process" })
}

// socketName returns the name and the number of the process in the name of its
// socket. The name is empty in a socket whose path would have been too long.
func socketName(path string) (name string, pid int) {
	parts := strings.Split(filepath.Base(path), ".")
	if pid, err := strconv.Atoi(parts[0]); err == nil {
		return "", pid
	}
	if len(parts) > 1 {
		pid, _ = strconv.Atoi(parts[1]) // 0 is not the number of a process
	}
	return parts[0], pid
}

// Separate returns the warning for locks in the memory of this process beside
// these processes. It names their drivers, unless all of them keep locks in memory.
func Separate(all []Info) string {
	one, several := "keeps its own locks in memory", "keep their own locks in memory"
	mixed := len(InMemory(all)) < len(all)
	if mixed {
		one, several = "does not share the locks in the memory of this one", "do not share the locks in the memory of this one"
	}
	var pids []string
	for _, i := range all {
		pid := fmt.Sprint("pid ", i.PID)
		if mixed {
			pid += " (" + i.Driver + ")"
		}
		pids = append(pids, pid)
	}
	who := "another process of this program " + one
	if len(all) > 1 {
		who = "other processes of this program " + several
	}
	return who + ", " + strings.Join(pids, ", ") + ": they do not exclude each other"
}
