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

// Siblings returns the numbers of the other processes of this user that run the
// program called name and keep their locks in their own memory. Programs of the
// same name with another main package do not count, nor do processes in env
// test, of which a test may start many.
//
// The socket of a process that was killed refuses the connection, so that it
// never counts. A process that does not answer within a second does not count
// either.
func Siblings(ctx context.Context, folders []string, name string) (pids []int) {
	if !private.Supported {
		return nil
	}
	paths := slices.DeleteFunc(sockets(folders), func(path string) bool {
		owner, pid := socketName(path)
		return owner != "" && owner != plain(name) || pid == os.Getpid()
	})
	found := make(chan Found)
	for _, path := range paths {
		go func() { found <- whois(ctx, path) }()
	}
	for range paths { // each ends within findTime
		f := <-found
		same := f.Err == nil && f.Info.Name == name && f.Info.Main == MainPackage() && f.Info.PID != os.Getpid()
		if same && f.Info.Scope == "process" && f.Info.Env != "test" {
			pids = append(pids, f.Info.PID)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
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
// these processes.
func Separate(pids []int) string {
	if len(pids) == 1 {
		return fmt.Sprintf("another process of this program keeps its own locks in memory, pid %d: they do not exclude each other", pids[0])
	}
	all := strings.ReplaceAll(strings.Trim(fmt.Sprint(pids), "[]"), " ", ", pid ")
	return fmt.Sprintf("other processes of this program keep their own locks in memory, pid %s: they do not exclude each other", all)
}
