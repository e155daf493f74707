package workers

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// HolderOf returns the worker of this program that listens on a TCP address, and
// reports whether there is one. This program means the same executable.
// HolderOf finds processes of the same user, and those of all users if this
// process runs as root.
func HolderOf(addr string) (Holder, bool) {
	sockets := listening(addr)
	if len(sockets) == 0 {
		return Holder{}, false
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return Holder{}, false
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !sameProgram(pid) || !hasOneOf(pid, sockets) {
			continue
		}
		if h := (Holder{PID: pid, Worker: workerID(pid)}); h.Worker > 0 {
			// Not by its executable: it may have another path than the worker's, after a
			// new build has replaced the folder.
			if parent := parentOf(pid); hasOneOf(parent, sockets) {
				h.Parent = parent
			}
			return h, true
		}
	}
	return Holder{}, false
}

// listening returns the sockets that occupy an address, in the form of the links
// of descriptors in /proc.
func listening(addr string) (sockets []string) {
	const local, state, inode, listen = 1, 3, 9, "0A"
	host, text, _ := net.SplitHostPort(addr)
	port, _ := strconv.Atoi(text) // 0 on error, on which nothing listens
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue // without IPv6 there is no tcp6
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) <= inode || f[state] != listen {
				continue
			}
			if at, ok := strings.CutSuffix(f[local], fmt.Sprintf(":%04X", port)); ok && overlap(net.ParseIP(host), ipOf(at)) {
				sockets = append(sockets, "socket:["+f[inode]+"]")
			}
		}
	}
	return sockets
}

// overlap reports whether a socket at one of two addresses may occupy the other.
// A nil address is a name, or not known.
func overlap(a, b net.IP) bool {
	return a == nil || b == nil || a.IsUnspecified() || b.IsUnspecified() || a.Equal(b)
}

// ipOf decodes an address of /proc/net/tcp: words in the byte order of the
// machine.
func ipOf(text string) net.IP {
	ip, err := hex.DecodeString(text)
	if err != nil || len(ip)%4 != 0 {
		return nil
	}
	for word := range slices.Chunk(ip, 4) {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	return ip
}

func ofProcess(pid int, name string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), name)
}

// sameProgram reports whether a process runs this executable, or one that this
// executable has replaced at its path.
func sameProgram(pid int) bool {
	own, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return false
	}
	exe, err := os.Readlink(ofProcess(pid, "exe"))
	return err == nil && strings.TrimSuffix(exe, " (deleted)") == strings.TrimSuffix(own, " (deleted)")
}

func hasOneOf(pid int, sockets []string) bool {
	folder := ofProcess(pid, "fd")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		link, err := os.Readlink(filepath.Join(folder, e.Name()))
		return err == nil && slices.Contains(sockets, link)
	})
}

// workerID returns the worker number of a process, or 0 if it was not started
// as a worker.
func workerID(pid int) int {
	environ, err := os.ReadFile(ofProcess(pid, "environ"))
	if err != nil {
		return 0
	}
	for kv := range bytes.SplitSeq(environ, []byte{0}) {
		if text, ok := bytes.CutPrefix(kv, []byte(envID+"=")); ok {
			id, _ := strconv.Atoi(string(text)) // 0 if text is not a number
			return id
		}
	}
	return 0
}

// parentOf returns the parent of a process, or 0.
func parentOf(pid int) int {
	_, parent := stateOf(pid)
	return parent
}

// stateOf returns the state of a process, a letter as in proc(5), and its
// parent.
func stateOf(pid int) (state byte, parent int) {
	stat, err := os.ReadFile(ofProcess(pid, "stat"))
	if err != nil {
		return 0, 0
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the process name before it may have blanks
	if len(f) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(f[1])
	return f[0][0], parent
}
