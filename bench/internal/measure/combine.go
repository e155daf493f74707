package measure

// Combine returns the claims of a row that several runs have measured: each figure
// is the median over the runs, and Low and High are the quartiles of their values.
// The curves are copied from the first run.
func Combine(runs [][]Claim) []Claim {
	if len(runs) == 1 {
		return runs[0]
	}
	claims := make([]Claim, len(runs[0]))
	for i := range claims {
		claims[i] = combine(runs, i)
	}
	return claims
}

func combine(runs [][]Claim, i int) Claim {
	over := func(figure func(c *Claim) float64) (figures []float64) {
		for _, claims := range runs {
			figures = append(figures, figure(&claims[i]))
		}
		return figures
	}
	c := runs[0][i].judge(over(func(c *Claim) float64 { return c.Value }))
	c.Mega = Median(over(func(c *Claim) float64 { return c.Mega }))
	others := make([]Figure, len(c.Others))
	for o, figure := range c.Others {
		others[o] = Figure{figure.Name, Median(over(func(c *Claim) float64 { return c.Others[o].Value }))}
	}
	c.Others = others
	return c
}
