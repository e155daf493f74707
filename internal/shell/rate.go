package shell

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/limit/driver"
)

// Rates is the value of --rate.
type Rates []driver.Rate

// Set adds a rate such as "5/800ms". The time is rounded up to microseconds, as
// package limit does.
func (r *Rates) Set(text string) error {
	count, per, ok := strings.Cut(text, "/")
	if !ok {
		return errors.New(`it has no "/"; want N/TIME, such as 5/800ms`)
	}
	n, err := strconv.Atoi(count)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // check refuses a number that is too large, with its bound
		return fmt.Errorf("%q is not a number; want N/TIME, such as 5/800ms", count)
	}
	d, err := time.ParseDuration(per)
	if err != nil {
		return fmt.Errorf("%q is not a time such as 800ms, 1s, 1m or 24h", per)
	}
	*r = append(*r, driver.Rate{N: n, Per: (d + time.Microsecond - 1).Truncate(time.Microsecond)})
	return nil
}

// String returns the rates as they were given.
func (r *Rates) String() string {
	var all []string
	for _, rate := range *r {
		all = append(all, rateText(rate))
	}
	return strings.Join(all, " ")
}

func rateText(r driver.Rate) string { return fmt.Sprintf("%d/%s", r.N, plain.Exact(r.Per)) }

// Type returns the name of the value in the help.
func (r *Rates) Type() string { return "N/TIME" }

// smallest returns the smallest N, the largest cost.
func (r Rates) smallest() int {
	n := r[0].N
	for _, rate := range r[1:] {
		n = min(n, rate.N)
	}
	return n
}
