package table

import "time"

const (
	// remembered is how long the shard keeps a token that was forced or barred:
	// longer than a renewal period, and longer than any call lasts.
	remembered = time.Minute
	// departedMax is the maximum number of such tokens in a shard.
	departedMax = 8192
)

// departed keeps the tokens that must not be used again, each with the error as
// the reason: tokens of forced grants, and tokens that were released before
// their request arrived.
type departed struct {
	why   map[string]error
	order []departure // oldest first
}

type departure struct {
	token string
	until instant
}

// find returns the error for a token that must not be used again, or nil.
func (d *departed) find(token string) error { return d.why[token] }

func (d *departed) add(token string, why error, now instant) {
	d.purge(now)
	if _, known := d.why[token]; known {
		return
	}
	if len(d.order) == departedMax {
		d.drop(1)
	}
	if d.why == nil {
		d.why = make(map[string]error)
	}
	d.why[token] = why
	d.order = append(d.order, departure{token, now.add(remembered)})
}

// purge removes the tokens whose time has passed. It returns the time of the
// next removal, if a token is left.
func (d *departed) purge(now instant) (next instant, any bool) {
	n := 0
	for n < len(d.order) && now >= d.order[n].until {
		n++
	}
	d.drop(n)
	if len(d.order) == 0 {
		return 0, false
	}
	return d.order[0].until, true
}

func (d *departed) drop(n int) {
	for _, old := range d.order[:n] {
		delete(d.why, old.token)
	}
	d.order = d.order[n:]
	if len(d.order) == 0 {
		*d = departed{}
	}
}
