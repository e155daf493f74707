package rendezvous

import "golang.org/x/sys/unix"

// bootID returns an id of this run of the kernel, or zero if the system does
// not report one.
func bootID() (id [16]byte) {
	text, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return id
	}
	return parseUUID(text)
}
