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
		// Num RefCount Protocol Flags Type St Inode Path
		fields := strings.SplitN(strings.Join(strings.Fields(string(line)), " "), " ", 8)
		if len(fields) == 8 && fields[7] == path {
			found[fields[6]] = true
		}
	}
	return found
}
