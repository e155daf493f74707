package cli

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// workerNumber is the value of a flag that takes a number from 1 on; 0 is a flag that
// was not given.
type workerNumber struct {
	of   *int
	most int // 0 is no bound
}

var _ pflag.Value = workerNumber{}

func (n workerNumber) String() string {
	if n.of == nil || *n.of == 0 {
		return ""
	}
	return strconv.Itoa(*n.of)
}

// Set takes a number, and says in words what else it was given.
func (n workerNumber) Set(text string) error {
	v, err := strconv.Atoi(text)
	switch {
	case err == nil && v >= 1 && (n.most == 0 || v <= n.most):
		*n.of = v
		return nil
	case n.most == 0:
		return errors.New("it takes a number from 1 on")
	}
	return fmt.Errorf("it takes a number from 1 to %d", n.most)
}

// Type is what a flag's help calls it.
func (workerNumber) Type() string { return "int" }
