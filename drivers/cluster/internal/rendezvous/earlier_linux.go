package rendezvous

import (
	"bytes"
	"os"
	"strings"
)

// earlierSockets returns the inodes of the sockets that were bound at path by a
// hub whose files have been removed: its listener and its connections. As long
// as they are open, the kernel lists them under the name to which they were
// bound.
func earlierSockets(path string) (map[string]bool, error) {
	list, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	return boundAt(list, path+unfinished), nil
}

// boundAt returns the inodes of the sockets in list whose name is path.
func boundAt(list []byte, path string) map[string]bool {
	found := make(map[string]bool)
	for line := range bytes.Lines(list) {
		// Num RefCount Protocol Flags Type St Inode Path; the path may have spaces.
		var inode string
		rest := strings.TrimSuffix(string(line), "\n")
		for range 7 {
			inode, rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
		}
		if rest != "" && rest == path {
			found[inode] = true
		}
	}
	return found
}
