package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// BrokerRole makes this program a NATS server, which prints its address, and
// ends with its input.
const BrokerRole = "broker"

func ServeBroker(_ context.Context, in io.Reader, out io.Writer) error {
	s, err := natstest.New(natstest.Options{})
	if err != nil {
		return err
	}
	defer s.Stop()
	if _, err := fmt.Fprintln(out, s.URL()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// broker is a NATS server in a separate process.
type broker struct {
	*child
	url string
}

func startBroker() (*broker, error) {
	c, err := start(BrokerRole)
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(c.out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the address of NATS: %w", err), c.Stop())
	}
	return &broker{c, strings.TrimSpace(line)}, nil
}
