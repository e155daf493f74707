package listen

import (
	"net"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/megaframework/mega/internal/settings"
)

func TestActionForAMissingDescriptorIsNotAnotherAddress(t *testing.T) {
	c, err := settings.Load(settings.Source{})
	if err != nil {
		t.Fatal(err)
	}
	cause := &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)}
	f := Failure(c, "ops.addr", "127.0.0.1:9090", cause)
	if want := []string{"Raise the limit:  ulimit -n 1024, or LimitNOFILE of the service"}; !slices.Equal(f.Actions, want) {
		t.Errorf("got %q, want %q", f.Actions, want)
	}
}
