package plan

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/request"
)

// Function is a function that was passed to an option. It has two kinds of
// parameters: its own arguments, which the option passes with each call, and
// provided values, which the injector passes once.
type Function struct {
	Option string // "Routes"
	Site   string // file:line of the option
	Value  reflect.Value

	message bool         // its last parameter is a message or a message's payload
	payload reflect.Type // type that the payload must have, if a topic fixes it
}

func newFunction(option string, fn any) Function {
	return Function{Option: option, Site: callSite(), Value: reflect.ValueOf(fn)}
}

// isArgument reports whether a parameter of this type is an option's own
// argument, and never a provided value.
func isArgument(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[context.Context](), reflect.TypeFor[*megactx.Ctx](), reflect.TypeFor[megactx.Router](),
		reflect.TypeFor[megactx.Handler](), reflect.TypeFor[http.Handler]():
		return true
	}
	return false
}

// isArgument reports whether parameter i is the option's own argument.
func (f Function) isArgument(i int) bool {
	t := f.Value.Type()
	return isArgument(t.In(i)) || f.message && i == t.NumIn()-1 || f.isWords(t.In(i))
}

// isWords reports whether a parameter takes the arguments of a command.
func (f Function) isWords(t reflect.Type) bool {
	return f.Option == string(KindCommand) && t == reflect.TypeFor[[]string]()
}

func isError(t reflect.Type) bool { return t == reflect.TypeFor[error]() }

// shape is the signature that an option expects of its function.
type shape struct {
	takes   []reflect.Type // exactly one of these arguments
	named   string         // description of them for error messages
	returns []reflect.Type // one of these results
	nothing bool           // whether the function may return nothing
	shape   string         // description of the shape for error messages
}

func shapeOf(option string) shape {
	failing := []reflect.Type{reflect.TypeFor[error]()}
	switch option {
	case "Routes":
		return shape{[]reflect.Type{reflect.TypeFor[megactx.Router]()}, "a mega.Router", failing, true, "func(mega.Router, provided values…)"}
	case "Use":
		handlers := []reflect.Type{reflect.TypeFor[megactx.Handler](), reflect.TypeFor[http.Handler]()}
		return shape{handlers, "a mega.Handler or an http.Handler", handlers, false, "func(provided values…, mega.Handler) mega.Handler, or the same with http.Handler"}
	}
	contexts := []reflect.Type{reflect.TypeFor[context.Context](), reflect.TypeFor[*megactx.Ctx]()}
	const either = "a context.Context or a *mega.Ctx"
	if option == string(KindCommand) {
		return shape{contexts, either, failing, false, "func(provided values…, *mega.Ctx, []string) error, or the same with context.Context, and without the arguments"}
	}
	mayBeSilent := option != string(KindReady)
	return shape{contexts, either, failing, mayBeSilent, "func(provided values…, context.Context) error, or the same with *mega.Ctx"}
}

// check returns an error if the function has the wrong shape.
func (f Function) check() error {
	if !f.Value.IsValid() || f.Value.Kind() != reflect.Func || f.Value.IsNil() {
		want := shapeOf(f.Option).shape
		switch {
		case f.Option == "Provide":
			want = constructorShape
		case f.message:
			want = "a function"
		}
		return f.wrong("it is not a function", want)
	}
	switch {
	case f.Option == "Provide":
		return f.checkConstructor()
	case f.message:
		return f.checkMessage()
	}
	s, t := shapeOf(f.Option), f.Value.Type()
	var given []reflect.Type
	for in := range t.Ins() {
		if isArgument(in) {
			given = append(given, in)
		}
	}
	switch {
	case t.IsVariadic():
		return f.wrong("it is variadic", s.shape)
	case len(given) > 1:
		return f.wrong("it must take only one argument besides provided values, "+s.named, s.shape)
	case len(given) == 0 || !slices.Contains(s.takes, given[0]):
		return f.wrong("it must take "+s.named, s.shape)
	case t.NumOut() == 0 && s.nothing:
	case t.NumOut() != 1 || !slices.Contains(s.returns, t.Out(0)):
		return f.wrong("what it returns does not fit", s.shape)
	case f.Option == "Use" && t.Out(0) != given[0]:
		return f.wrong("it takes one kind of handler and returns another", s.shape)
	}
	return nil
}

const constructorShape = "func(provided values…) (value…), or the same with an error at the end"

func (f Function) checkConstructor() error {
	t := f.Value.Type()
	switch made := f.Makes(); {
	case t.IsVariadic():
		return f.wrong("it is variadic", constructorShape)
	case len(made) == 0:
		return f.wrong("it returns no value", constructorShape)
	case slices.ContainsFunc(made, isError):
		return f.wrong("its error is not the last result", constructorShape)
	}
	for _, typ := range slices.Concat(slices.Collect(t.Ins()), f.Makes()) {
		if isArgument(typ) {
			return f.wrong(typeName(typ)+" belongs to a request or a call, not to a constructor", constructorShape)
		}
	}
	return nil
}

func (f Function) wrong(why, want string) error {
	wrong := &failure.Failure{
		Code:  "boot.wrong_shape",
		Exit:  failure.ExitInternal,
		Text:  fmt.Sprintf("mega.%s cannot use what it was given: %s.", f.Option, why),
		Facts: []failure.Fact{{Name: "given at", Value: f.Site}, {Name: "want", Value: want}},
	}
	if f.Value.IsValid() {
		wrong.Facts = append(wrong.Facts, failure.Fact{Name: "got", Value: typeName(f.Value.Type())})
	}
	if f.Value.IsValid() && f.Value.Kind() == reflect.Func && !f.Value.IsNil() {
		wrong.Facts = append(wrong.Facts, failure.Fact{Name: "declared", Value: f.Declared()})
	}
	return wrong
}

// typeName returns the name of a type as a program writes it. The types of package
// megactx are aliases in package mega.
func typeName(t reflect.Type) string {
	return ctxPackage.ReplaceAllString(t.String(), "mega.")
}

var ctxPackage = regexp.MustCompile(`\bmegactx\.`)

// Needs returns the types of the provided values that the function takes.
func (f Function) Needs() (types []reflect.Type) {
	for i := range f.Value.Type().NumIn() {
		if !f.isArgument(i) {
			types = append(types, f.Value.Type().In(i))
		}
	}
	return types
}

// Makes returns the types of the values that a constructor returns, without its
// error.
func (f Function) Makes() (types []reflect.Type) {
	types = slices.Collect(f.Value.Type().Outs())
	if n := len(types); n > 0 && isError(types[n-1]) {
		types = types[:n-1]
	}
	return types
}

// Declared returns the function's name and the place of its code.
func (f Function) Declared() string {
	code := runtime.FuncForPC(f.Value.Pointer())
	file, line := code.FileLine(code.Entry())
	return fmt.Sprintf("%s, %s:%d", f.Name(), file, line)
}

// Place returns where the function is declared and passed to its option, as facts of a
// Failure. app is empty for a function that belongs to no app.
func (f Function) Place(app string) []failure.Fact {
	facts := []failure.Fact{{Name: "declared", Value: f.Declared()}, {Name: "given at", Value: "mega." + f.Option + ", " + f.Site}}
	if app != "" {
		facts = append(facts, failure.Fact{Name: "app", Value: app})
	}
	return facts
}

// Name returns the function's name with its package.
func (f Function) Name() string {
	name := runtime.FuncForPC(f.Value.Pointer()).Name()
	return name[strings.LastIndexByte(name, '/')+1:]
}

// Bound is a function with its provided values.
type Bound struct {
	Function
	values []reflect.Value // by parameter; the zero Value stands for an argument
}

// Invocation returns a function for the injector. That function takes the
// provided values and passes the bound function to then.
func (f Function) Invocation(then func(Bound)) any {
	t := reflect.FuncOf(f.Needs(), nil, false)
	return reflect.MakeFunc(t, func(given []reflect.Value) []reflect.Value {
		b := Bound{Function: f}
		for i := range f.Value.Type().NumIn() {
			if f.isArgument(i) {
				b.values = append(b.values, reflect.Value{})
				continue
			}
			b.values = append(b.values, given[0])
			given = given[1:]
		}
		then(b)
		return nil
	}).Interface()
}

// Unbound returns the function with the known values, and zero values for all
// other parameters.
func (f Function) Unbound(known map[reflect.Type]reflect.Value) Bound {
	b := Bound{Function: f}
	for in := range f.Value.Type().Ins() {
		value, ok := known[in]
		if !ok && !isArgument(in) {
			value = reflect.Zero(in)
		}
		b.values = append(b.values, value)
	}
	return b
}

// Takes returns the type of the function's own argument.
func (b Bound) Takes() reflect.Type {
	return b.Value.Type().In(slices.IndexFunc(b.values, func(v reflect.Value) bool { return !v.IsValid() }))
}

// Call calls the function with its own arguments, in order.
func (b Bound) Call(arguments ...any) []reflect.Value {
	in := slices.Clone(b.values)
	for i, v := range in {
		if v.IsValid() {
			continue
		}
		in[i] = reflect.New(b.Value.Type().In(i)).Elem()
		if arguments[0] != nil {
			in[i].Set(reflect.ValueOf(arguments[0]))
		}
		arguments = arguments[1:]
	}
	return b.Value.Call(in)
}

// Run calls a function that takes a context, either the context of the process
// or of the app that h hosts.
func (b Bound) Run(ctx context.Context, h *request.Host) error {
	c, _ := megactx.From(h.Context(ctx)) // is a context.Context too
	return ErrorOf(b.Call(c))
}

// RunCommand calls the function of a command with the arguments of its command
// line.
func (b Bound) RunCommand(ctx context.Context, h *request.Host, words []string) error {
	var arguments []any
	c, _ := megactx.From(h.Context(ctx))
	for i, v := range b.values {
		switch {
		case v.IsValid():
		case b.isWords(b.Value.Type().In(i)):
			arguments = append(arguments, words)
		default:
			arguments = append(arguments, c)
		}
	}
	return ErrorOf(b.Call(arguments...))
}

// ErrorOf returns the error among the results of a call, which is the last one.
func ErrorOf(results []reflect.Value) error {
	if len(results) == 0 {
		return nil
	}
	err, _ := reflect.TypeAssert[error](results[len(results)-1])
	return err
}
