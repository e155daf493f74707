package listen

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/settings"
)

// Failure returns the failure for an address that cannot be opened. key is the
// key of the address.
func Failure(c *settings.Config, key, addr string, err error) *failure.Failure {
	another := "127.0.0.1:8088"
	if errors.Is(err, syscall.EADDRINUSE) {
		another = Beside(addr)
	}
	f := &failure.Failure{
		Code: "app.cannot_listen", Exit: failure.ExitUnavailable, Cause: err,
		Text:    fmt.Sprintf("Cannot listen on the address %s.", addr),
		Facts:   []failure.Fact{failure.Setting(c, key)},
		Actions: failure.Actions("Choose another", failure.Set(c, key, another), "Take a free one", failure.Set(c, key, "127.0.0.1:0")),
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		f.Text = fmt.Sprintf("Another process uses the address %s.", addr)
		f.Actions = append(f.Actions, "See who has it:   ss -ltnp")
	}
	if errors.Is(err, syscall.EACCES) {
		f.Text = fmt.Sprintf("This user may not listen on the address %s.", addr)
		f.Actions = failure.Actions("Choose a higher port", failure.Set(c, key, above(addr, 8000)),
			"Allow it in systemd", "AmbientCapabilities=CAP_NET_BIND_SERVICE", "Allow it on Linux", "setcap cap_net_bind_service=+ep "+executable())
	}
	if actions := MoreDescriptors(err); actions != nil { // another address needs one, too
		f.Actions = actions
	}
	return f
}

// executable returns the path of the program for a command of an operator.
func executable() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// Beside returns an address to suggest in place of one that is in use.
func Beside(addr string) string { return above(addr, 8) } // 8080 becomes 8088

// above returns addr with its port raised by step, so that addresses with different
// ports get different ones.
func above(addr string, step uint64) string {
	host, text, err := net.SplitHostPort(addr)
	port, malformed := strconv.ParseUint(text, 10, 16)
	if err != nil || malformed != nil || port+step > math.MaxUint16 {
		return "127.0.0.1:8088"
	}
	return net.JoinHostPort(host, strconv.FormatUint(port+step, 10))
}

// MoreDescriptors returns the actions against an error if its cause is that the
// process or the system has no free descriptor, and nil otherwise.
func MoreDescriptors(err error) []string {
	if !outOfDescriptors(err) {
		return nil
	}
	return failure.Actions("Raise the limit", "ulimit -n 1024, or LimitNOFILE of the service")
}
