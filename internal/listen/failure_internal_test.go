package listen

import (
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/megaframework/mega/internal/failure"
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

func TestAnAddressInUseIsNotSuggestedAgain(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:8080": "127.0.0.1:8088", "127.0.0.1:8088": "127.0.0.1:8096", ":9090": ":9098", "[::1]:8080": "[::1]:8088",
		"127.0.0.1:65530": "127.0.0.1:8088", "127.0.0.1:http": "127.0.0.1:8088",
	} {
		if got := Beside(addr); got != want {
			t.Errorf("%s: got %s, want %s", addr, got, want)
		}
	}
	c, err := settings.Load(settings.Source{})
	if err != nil {
		t.Fatal(err)
	}
	f := Failure(c, "ops.addr", "127.0.0.1:8088", &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)})
	if len(f.Actions) == 0 || strings.Contains(f.Actions[0], "127.0.0.1:8088") {
		t.Errorf("the advice is %q", f.Actions)
	}
}

func TestAPortThatTheUserMayNotOpenNamesItsPermission(t *testing.T) {
	c, err := settings.Load(settings.Source{})
	if err != nil {
		t.Fatal(err)
	}
	for addr, higher := range map[string]string{":80": "=:8080", "[::1]:443": "=[::1]:8443"} { // of two apps
		f := Failure(c, "ops.addr", addr, &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", syscall.EACCES)})
		all := strings.Join(f.Actions, "\n")
		if !strings.Contains(f.Text, "may not listen") || len(f.Actions) > failure.MaxActions {
			t.Errorf("%s: got %q with %q", addr, f.Text, f.Actions)
		}
		for _, want := range []string{higher, "AmbientCapabilities=CAP_NET_BIND_SERVICE", "setcap cap_net_bind_service=+ep "} {
			if !strings.Contains(all, want) {
				t.Errorf("%s: %q is not in\n%s", addr, want, all)
			}
		}
	}
}
