package lab

import (
	"context"
	"errors"
	"fmt"
	"io"

	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// BrokerRole makes this program a NATS server, which prints its address, and
// ends with its input.
const BrokerRole = "broker"

// ServeBroker is the program of BrokerRole.
func ServeBroker(_ context.Context, in io.Reader, out io.Writer) (err error) {
	s, err := natstest.New(natstest.Options{})
	if err != nil {
		return err
	}
	defer s.Stop()
	return serve(s.URL(), in, out)
}

// serve prints the address of a server, and returns at the end of its input.
func serve(addr string, in io.Reader, out io.Writer) error {
	_, err := fmt.Fprintln(out, addr)
	_, ended := io.Copy(io.Discard, in)
	return errors.Join(err, ended)
}
