//go:build unix

package nonblock_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/megaframework/mega/drivers/internal/nonblock"
)

func TestWriteMovesWhatThereIsRoomFor(t *testing.T) {
	eachKind(t, func(t *testing.T, here, there net.Conn) {
		raw, err := here.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		total := 0
		sent := make([]byte, 1<<20)
		_ = raw.Write(func(fd uintptr) bool {
			for {
				n, err := nonblock.Write(fd, sent)
				if total += n; err != nil {
					if !errors.Is(err, syscall.EAGAIN) || n != 0 {
						t.Errorf("Write = %d, %v", n, err)
					}
					return true
				}
			}
		})
		if got, err := io.CopyN(io.Discard, there, int64(total)); err != nil {
			t.Errorf("the other side received %d of %d bytes: %v", got, total, err)
		}
	})
}
