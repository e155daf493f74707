package boot

import (
	"net"

	"golang.org/x/sys/unix"
)

// turnAway has the kernel drop what asks for a new connection, as if it were
// lost on the way: the client asks again, and finds the address closed. A queue
// that is closed while it is being filled loses connections, which clients
// take for made.
func turnAway(l *net.TCPListener) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	const (
		flags    = 13 // the byte of a TCP header with SYN and ACK in it
		syn, ack = 0x02, 0x10
	)
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: syn | ack},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: syn, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 16},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &filter)
	})
	if err != nil {
		return err
	}
	return failed
}
