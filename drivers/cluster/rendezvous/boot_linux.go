package rendezvous

import "os"

// bootID tells this run of the kernel from those before, or is zero where the
// system does not say.
func bootID() (id [16]byte) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id
	}
	return parseUUID(string(text))
}
