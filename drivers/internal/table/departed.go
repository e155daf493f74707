package table

import "time"

const (
	// remembered is how long a token that was forced or barred is known as
	// such: longer than a renewal period, and than any call is under way.
	remembered = time.Minute
	// departedMax bounds how many a shard remembers.
	departedMax = 8192
)

// departed remembers tokens that must not come back, each with the error that
// says why: those taken by force, and those released before they were seen.
type departed struct {
	why   map[string]error
	order []departure // oldest first
}

type departure struct {
	token string
	until time.Time
}

// find returns why token may not come back, or nil.
func (d *departed) find(token string, now time.Time) error {
	if len(d.order) == 0 {
		return nil
	}
	d.purge(now)
	return d.why[token]
}

func (d *departed) add(token string, why error, now time.Time) {
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
	d.order = append(d.order, departure{token, now.Add(remembered)})
}

// purge forgets those whose time has passed. It returns when the next one's
// will have, if there is one.
func (d *departed) purge(now time.Time) (next time.Time, any bool) {
	n := 0
	for n < len(d.order) && !now.Before(d.order[n].until) {
		n++
	}
	d.drop(n)
	if len(d.order) == 0 {
		return time.Time{}, false
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
