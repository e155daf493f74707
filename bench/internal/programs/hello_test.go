package programs

import (
	"maps"
	"slices"
	"testing"

	"github.com/megaframework/mega/bench/internal/measure"
)

func TestFunctionsBelongToTheModuleWithTheLongestPath(t *testing.T) {
	symbols := `  401000    100 T runtime.main
  402000     10 t github.com/redis/go-redis/v9.(*Client).Ping
  402100      5 T github.com/redis/go-redis/v9/internal/pool.New
  403000      7 T go.opentelemetry.io/otel/trace.SpanFromContext
  403100      2 T gopkg.in/yaml%2ev3.Marshal
  404000   9000 D github.com/redis/go-redis/v9.table
             0 U getpwnam_r
  405000      3 T github.com/redis/go-redis/v90.other
`
	got := byModule(symbols, []string{
		"github.com/redis/go-redis/v9", "go.opentelemetry.io/otel", "go.opentelemetry.io/otel/trace", "gopkg.in/yaml.v3",
	})
	want := map[string]float64{
		goLibrary: 103, "github.com/redis/go-redis/v9": 15, "go.opentelemetry.io/otel/trace": 7, "gopkg.in/yaml.v3": 2,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestLargestAddsUpTheOthers(t *testing.T) {
	got := largest([]measure.Figure{{Name: "a", Value: 5}, {Name: "b", Value: 3}, {Name: "c", Value: 2}, {Name: "d", Value: 1}}, 2)
	if want := []measure.Figure{{Name: "a", Value: 5}, {Name: "b", Value: 3}, {Name: "2 others", Value: 3}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPlainProgramAnswers(t *testing.T) {
	p, err := compile(t.Context(), t.TempDir(), "plain", "")
	if err != nil {
		t.Fatal(err)
	}
	if d, err := untilAnswer(t.Context(), p.binary); err != nil || d <= 0 {
		t.Errorf("it answered after %v, %v", d, err)
	}
}
