package cli

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// positive is the value of a flag that accepts a number from 1 on.
type positive struct {
	of   *int // has the default; 0 means that there is none
	most int  // 0 means no limit
}

var _ pflag.Value = positive{}

func (n positive) String() string {
	if n.of == nil || *n.of == 0 {
		return ""
	}
	return strconv.Itoa(*n.of)
}

// Set parses a number, and returns a readable error for any other text.
func (n positive) Set(text string) error {
	v, err := strconv.Atoi(text)
	switch {
	case err == nil && v >= 1 && (n.most == 0 || v <= n.most):
		*n.of = v
		return nil
	case n.most == 0:
		return errors.New("must be a number from 1 on")
	}
	return fmt.Errorf("must be a number from 1 to %d", n.most)
}

// Type returns the type's name in the flag's help.
func (positive) Type() string { return "int" }
