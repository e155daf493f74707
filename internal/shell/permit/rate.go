package permit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/megaframework/mega/limit"
)

// rates is the value of --rate. Package limit checks its bounds.
type rates []limit.Rate

// Set adds a rate such as "5/800ms".
func (r *rates) Set(text string) error {
	count, per, ok := strings.Cut(text, "/")
	if !ok {
		return errors.New(`it has no "/"; want N/TIME, such as 5/800ms`)
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		return fmt.Errorf("%q is not a number; want N/TIME, such as 5/800ms", count)
	}
	d, err := time.ParseDuration(per)
	if err != nil {
		return fmt.Errorf("%q is not a time such as 800ms, 1s, 1m or 24h", per)
	}
	*r = append(*r, limit.Rate{N: n, Per: d})
	return nil
}

// String returns the rates as they were given.
func (r *rates) String() string {
	var all []string
	for _, rate := range *r {
		all = append(all, fmt.Sprintf("%d/%v", rate.N, rate.Per))
	}
	return strings.Join(all, " ")
}

// Type returns the name of the value in the help.
func (r *rates) Type() string { return "N/TIME" }
