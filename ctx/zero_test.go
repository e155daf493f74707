package megactx_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/request"
)

// Every method of every value that a program can come to hold without having
// been given a real one is called with what is at hand: it must not panic, and
// what returns an error must return one of those that say why.
func TestZeroValuesAnswer(t *testing.T) {
	for name, x := range map[string]struct {
		zero   any
		exempt []string // methods that work even so
	}{
		"a Ctx":                {&megactx.Ctx{}, []string{"Err"}},
		"a Ctx of a zero Host": {outside(t.Context(), &request.Host{}), []string{"Err", "Go"}},
		"a Lock":               {megactx.Lock{}, nil},
		"a Limit":              {megactx.Limit{}, nil},
		"a Bus":                {megactx.Bus{}, nil},
		"a Stream":             {&megactx.Stream{}, nil},
	} {
		v := reflect.ValueOf(x.zero)
		for i := range v.NumMethod() {
			method := v.Type().Method(i).Name
			if slices.Contains(x.exempt, method) || name == "a Stream" && promoted(method) {
				continue
			}
			t.Run(name+"/"+method, func(t *testing.T) {
				for _, out := range v.Method(i).Call(arguments(t, v.Method(i).Type())) {
					if out.Type() != reflect.TypeFor[error]() {
						continue
					}
					err, _ := reflect.TypeAssert[error](out)
					if !errors.Is(err, megactx.ErrNotConfigured) && !errors.Is(err, megactx.ErrNoRequest) {
						t.Errorf("got %v", err)
					}
				}
			})
		}
	}
}

// promoted reports whether a method of a Stream is that of its Ctx.
func promoted(method string) bool {
	_, ok := reflect.TypeFor[*megactx.Ctx]().MethodByName(method)
	return ok
}

// arguments are some for a function of type typ.
func arguments(t *testing.T, typ reflect.Type) (all []reflect.Value) {
	t.Helper()
	for i := range typ.NumIn() {
		if typ.IsVariadic() && i == typ.NumIn()-1 {
			break
		}
		switch in := typ.In(i); {
		case in == reflect.TypeFor[any]() || in == reflect.TypeFor[*struct{}]():
			all = append(all, reflect.ValueOf(&struct{}{}))
		case in.Kind() == reflect.Interface: // a context
			all = append(all, reflect.ValueOf(t.Context()))
		case in.Kind() == reflect.Func:
			all = append(all, reflect.MakeFunc(in, func([]reflect.Value) []reflect.Value {
				t.Error("the function was called")
				return []reflect.Value{reflect.Zero(in.Out(0))}
			}))
		default:
			all = append(all, reflect.Zero(in))
		}
	}
	return all
}

func TestZeroValuesSayNothing(t *testing.T) {
	var c megactx.Ctx
	if c.T("a.b") != "a.b" || c.Locale() != "" || c.URL("/x") != "/x" || c.Param("x") != "" || c.Query("x") != "" || c.Request() != nil {
		t.Error("a zero Ctx says something")
	}
	if _, ok := c.Lease(); ok {
		t.Error("a zero Ctx has a lease")
	}
	if _, err := c.Writer().Write(nil); !errors.Is(err, megactx.ErrNoRequest) {
		t.Errorf("its writer: %v", err)
	}
	if c.Err() != nil || c.Done() != nil {
		t.Error("a zero Ctx ends")
	}
	if found, ok := megactx.From(&c); !ok || found != &c {
		t.Error("a zero Ctx is not found")
	}
	var h request.Host
	h.EndStreams()
	if err := errors.Join(h.Drain(t.Context()), h.SetLimits(request.Limits{})); err != nil || h.Active() != nil || h.InFlight() != 0 {
		t.Errorf("a zero Host: %v", err)
	}
}
