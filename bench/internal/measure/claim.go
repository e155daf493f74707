// Package measure has what every row of the bench is made of: batches and turns
// in which contestants run, the samples that they leave, and the claims about
// them.
package measure

// Claim is one promise about speed, with what was measured.
type Claim struct {
	Row  string `json:"row"`
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Mega is the median of the repetitions, as are the others' figures.
	Mega   float64  `json:"mega"`
	Others []Figure `json:"others,omitempty"`
	// Against names the one of Others that Value is a ratio to; without it
	// Value is Mega.
	Against string  `json:"against,omitempty"`
	Value   float64 `json:"value"`
	// Low and High are the quartiles of Value over the repetitions.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Bound is the target: an upper bound, or a lower one with Lower. A
	// claim without a bound is for information.
	Bound float64 `json:"bound,omitempty"`
	Lower bool    `json:"at_least,omitempty"`
	// Axis names the count that Curves run over, such as "clients".
	Axis   string  `json:"over,omitempty"`
	Curves []Curve `json:"curves,omitempty"`

	// Noise is the share by which runs differ; 0 for the usual one.
	Noise float64 `json:"noise,omitempty"`
}

// Figure is what one contestant achieved.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Curve shows how a figure grows: Y, in the unit of its claim, for each X.
type Curve struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// Point is one point of a Curve.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// Missed reports whether the value is on the wrong side of its target.
func (c Claim) Missed() bool {
	switch {
	case c.Bound == 0:
		return false
	case c.Lower:
		return c.Value < c.Bound
	}
	return c.Value > c.Bound
}

// Worse returns by which share a value is worse than an earlier one; negative
// means better.
func (c Claim) Worse(earlier float64) float64 {
	switch {
	case c.Lower:
		return 1 - c.Value/earlier
	}
	return c.Value/earlier - 1
}

func (c Claim) judge(values []float64) Claim {
	c.Value, c.Low, c.High = Median(values), Quantile(values, 0.25), Quantile(values, 0.75)
	return c
}

// Over adds the curves behind the claim, one for each contestant, over a count.
func (c Claim) Over(count string, curves ...Curve) Claim {
	c.Axis, c.Curves = count, curves
	return c
}

// AtMost sets the target: an upper bound.
func (c Claim) AtMost(bound float64) Claim {
	c.Bound = bound
	return c
}

// Noisy sets the share by which runs differ.
func (c Claim) Noisy(share float64) Claim {
	c.Noise = share
	return c
}

// AtLeast sets the target: a lower bound.
func (c Claim) AtLeast(bound float64) Claim {
	c.Bound, c.Lower = bound, true
	return c
}
