package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// remote is a server in a separate process.
type remote struct {
	*child
	addr string
}

// startRemote starts a process that plays a role with an order, which may be nil,
// and waits for the address that it prints.
func startRemote(role string, order any) (*remote, error) {
	c, err := start(role)
	if err != nil {
		return nil, err
	}
	if order != nil {
		err = json.NewEncoder(c.in).Encode(order)
	}
	line := ""
	if err == nil {
		line, err = bufio.NewReader(c.out).ReadString('\n')
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the address of a %s: %w", role, err), c.Stop())
	}
	return &remote{c, strings.TrimSpace(line)}, nil
}
