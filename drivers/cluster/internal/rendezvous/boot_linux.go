package rendezvous

import "os"

// bootID returns an id of this run of the kernel, or zero if the system does
// not report one.
func bootID() (id [16]byte) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id
	}
	return parseUUID(string(text))
}
