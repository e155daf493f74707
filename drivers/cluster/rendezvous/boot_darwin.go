package rendezvous

import "golang.org/x/sys/unix"

// bootID tells this run of the kernel from those before, or is zero where the
// system does not say.
func bootID() (id [16]byte) {
	text, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return id
	}
	return parseUUID(text)
}
