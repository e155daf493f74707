package measure

// Samples holds what each contestant achieved, one value per repetition.
type Samples map[string][]float64

// Add adds what a contestant achieved in a repetition.
func (s Samples) Add(name string, v float64) { s[name] = append(s[name], v) }

// Mega is the contestant that claims are about.
const Mega = "mega"

// Ratio makes a claim about mega's figure as a multiple of another's in the
// same repetition.
func (s Samples) Ratio(name, unit, against string, others ...string) Claim {
	c := s.figures(name, unit, others...)
	c.Against = against
	ratios := make([]float64, len(s[Mega]))
	for i, v := range s[Mega] {
		ratios[i] = v / s[against][i]
	}
	return c.judge(ratios)
}

// Absolute makes a claim about mega's figure itself.
func (s Samples) Absolute(name, unit string, others ...string) Claim {
	return s.figures(name, unit, others...).judge(s[Mega])
}

func (s Samples) figures(name, unit string, others ...string) Claim {
	c := Claim{Name: name, Unit: unit, Mega: Median(s[Mega])}
	for _, o := range others {
		c.Others = append(c.Others, Figure{o, Median(s[o])})
	}
	return c
}

// Beside returns the figures of two contestants, the first one as mega's.
func (s Samples) Beside(name, other string) Samples { return Samples{Mega: s[name], other: s[other]} }
