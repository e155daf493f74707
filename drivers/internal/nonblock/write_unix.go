//go:build unix && (!linux || race)

package nonblock

import "syscall"

// Write writes a part of p to the descriptor of a socket that does not block, and
// returns its length. A socket without room returns syscall.EAGAIN.
func Write(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Write(int(fd), p[:min(len(p), most)])
		if err != syscall.EINTR { //nolint:errorlint // a system call wraps nothing
			return max(n, 0), err
		}
	}
}
