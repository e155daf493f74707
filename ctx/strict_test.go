package megactx_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/megaframework/mega/bus"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/lock"
)

type address struct {
	City string
	Zip  *uint16 `json:"zip"`
}

type parcel struct {
	address
	ID     int             `json:"id"`
	Weight float64         `json:"weight"`
	Fast   bool            `json:"fast"`
	Sent   time.Time       `json:"sent"`
	Digits int             `json:"digits,string"`
	Level  level           `json:"level"`
	Tags   []string        `json:"tags"`
	Image  []byte          `json:"image"`
	To     []address       `json:"to"`
	Extra  map[string]int8 `json:"extra"`
	Any    any             `json:"any"`
	Raw    json.RawMessage `json:"raw"`
	Shelf  map[int]string  `json:"shelf"`
	Marks  []int           `json:"marks,string"` //nolint:staticcheck // the option has no effect there
	From   netip.Addr      `json:"from"`
	Hidden int             `json:"-"`
}

// bound sends a JSON body and returns the status and the member errors of the
// answer.
func bound(t *testing.T, body string, options ...megactx.BindOption) (int, map[string]string) {
	t.Helper()
	s := newStage()
	s.router.Post("/", func(c *megactx.Ctx) error {
		var p parcel
		return c.Bind(&p, options...)
	})
	w := s.ask("POST", "/", body, "Content-Type: application/json")
	var problem megactx.Problem
	if w.Code != 204 {
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
			t.Fatal(err)
		}
	}
	return w.Code, problem.Errors
}

func TestAllWrongFieldsOfABodyAreNamed(t *testing.T) {
	status, wrong := bound(t, `{"id":"7","weight":"heavy","fast":1,"sent":"today","level":"low","tags":{"a":1},"image":7,
		"City":true,"nmae":"x","id":8,"to":[{"city":"Ulm","zip":70000},{"zip":-1,"street":"x"},[]],"extra":{"a":1.5,"b":300,"b":1},
		"any":{"x":[{"y":1,"y":2}]},"digits":"7","Hidden":1}`)
	want := map[string]string{
		"id": "is there twice", "weight": "must be a number", "fast": "must be true or false", "sent": "must be a time such as 2006-01-02T15:04:05Z",
		"level": "has to be high", "tags": "must be a list", "image": "must be text in base64", "City": "must be text", "nmae": "is unknown",
		"to[0].zip": "is too large", "to[1].zip": "must be a whole number, 0 or more", "to[1].street": "is unknown", "to[2]": "must be an object",
		"extra.a": "must be a whole number", "extra.b": "is there twice", "any.x[0].y": "is there twice", "Hidden": "is unknown",
	}
	if status != 400 || !maps.Equal(wrong, want) {
		t.Errorf("got  %d %v\nwant 400 %v", status, wrong, want)
	}
}

func TestWrongTypesAreInvalidInput(t *testing.T) {
	status, wrong := bound(t, `{"id":"7","to":{}}`)
	if want := map[string]string{"id": "must be a whole number", "to": "must be a list"}; status != 422 || !maps.Equal(wrong, want) {
		t.Errorf("got  %d %v\nwant 422 %v", status, wrong, want)
	}
}

func TestWrongTextsOfNumbersAreInvalidInput(t *testing.T) {
	for body, want := range map[string]map[string]string{
		`{"digits":"x"}`:                       {"digits": "must be a whole number"},
		`{"digits":7}`:                         {"digits": "must be text"},
		`{"shelf":{"1":"a","b":"c"}}`:          {"shelf.b": "must be a whole number"},
		`{"shelf":{"1":2},"digits":"1"}`:       {"shelf.1": "must be text"},
		`{"marks":"1"}`:                        {"marks": "must be a list"},
		`{"marks":1e400,"weight":"x"}`:         {"marks": "must be a list", "weight": "must be a number"},
		`{"digits":"8","marks":[1],"id":true}`: {"id": "must be a whole number"},
	} {
		if status, wrong := bound(t, body); status != 422 || !maps.Equal(wrong, want) {
			t.Errorf("%s: got %d %v, want 422 %v", body, status, wrong, want)
		}
	}
}

// price is a field that names itself in the errors of its own UnmarshalJSON.
type price int

func (p *price) UnmarshalJSON(text []byte) error {
	if string(text) != "7" {
		return megactx.FieldErrors{"price": "must be seven"}
	}
	*p = 7
	return nil
}

func TestErrorsOfAFieldsOwnUnmarshalJSONAreShownUnchanged(t *testing.T) {
	s := newStage()
	s.router.Post("/", func(c *megactx.Ctx) error {
		var in struct {
			Price price `json:"price"`
			Stock int   `json:"stock"`
		}
		return c.Bind(&in)
	})
	w := s.ask("POST", "/", `{"price":8,"stock":"x"}`, "Content-Type: application/json")
	if want := `"errors":{"price":"must be seven","stock":"must be a whole number"}`; w.Code != 422 || !strings.Contains(w.Body.String(), want) {
		t.Errorf("got %d %s, want 422 with %s", w.Code, w.Body, want)
	}
}

func TestRightBodyIsBound(t *testing.T) {
	status, wrong := bound(t, `{"ID":7,"weight":1,"fast":null,"sent":"2026-01-02T03:04:05Z","digits":"12","level":"high","tags":["a"],"image":"aGk=",
		"city":"Ulm","zip":8907,"to":[{"zip":null}],"extra":{"a":1,"A":2},"any":{"a":[1,{}]},"raw":{"x":1}}`)
	if status != 204 {
		t.Errorf("got %d %v", status, wrong)
	}
}

func TestFormHasTheTypesOfJSON(t *testing.T) {
	s := newStage()
	s.router.Post("/", func(c *megactx.Ctx) error {
		var in struct {
			Stock  uint8     `json:"stock"`
			Weight float64   `json:"weight"`
			Sent   time.Time `json:"sent"`
		}
		if err := c.Bind(&in); err != nil {
			return err
		}
		return c.Text(200, fmt.Sprint(in.Stock, in.Weight, in.Sent.Year()))
	})
	for body, want := range map[string]string{
		"stock=7&weight=1.5&sent=2026-01-02T03:04:05Z": "7 1.5 2026",
		"stock=&weight=&sent=":                         "0 0 1",
		"stock=-1&weight=NaN&sent=today":               `"errors":{"sent":"must be a time such as 2006-01-02T15:04:05Z","stock":"must be a whole number, 0 or more","weight":"must be a number"}`,
		"stock=256&weight=-Inf":                        `"errors":{"stock":"must be a whole number, 0 or more","weight":"must be a number"}`,
	} {
		w := s.ask("POST", "/", body, "Content-Type: application/x-www-form-urlencoded", "Accept: application/json")
		if got := w.Body.String(); got != want && (w.Code != 422 || !strings.Contains(got, want)) {
			t.Errorf("%s: got %d %s, want %s", body, w.Code, got, want)
		}
	}
}

// A struct without tags reads JSON by the names of its fields, and would stay empty for
// every form.
func TestFormNeedsATag(t *testing.T) {
	s := newStage()
	s.router.Post("/", func(c *megactx.Ctx) error {
		var in struct{ Name string }
		err := c.Bind(&in)
		if json := in.Name == "Lamp"; json == (err != nil) || err != nil && !strings.Contains(err.Error(), "no field of struct { Name string } has a name in a tag form or json") {
			t.Errorf("got %+v, %v", in, err)
		}
		return err
	})
	for kind, want := range map[string]int{"application/json": 204, "application/x-www-form-urlencoded": 500} {
		body := `{"name":"Lamp"}`
		if want == 500 {
			body = "name=Lamp"
		}
		if w := s.ask("POST", "/", body, "Content-Type: "+kind); w.Code != want {
			t.Errorf("%s: got %d, want %d", kind, w.Code, want)
		}
	}
}

type labels struct {
	Kind string `json:"kind"`
	ID   int    `json:"id"`
}

// A form has no value for a struct, also for one that reflection cannot set.
type (
	marks struct{ Marks int }
	stamp struct{ Stamp int }
)

// Owner is exported: a form makes the struct that an embedded pointer misses.
type Owner struct {
	Owner string `form:"owner"`
}

func TestFormSetsEmbeddedStructsAndLists(t *testing.T) {
	defaults := []string{"old"}
	s := newStage()
	s.router.Post("/", func(c *megactx.Ctx) error {
		in := struct {
			labels
			*Owner
			marks  `form:"marks"`
			*stamp `form:"stamp"`
			ID     string            `json:"id"`
			Tags   []string          `json:"tags"`
			Sizes  *[]uint16         `json:"sizes"`
			Levels []level           `json:"levels"`
			Image  []byte            `json:"image"`
			Gift   bool              `json:"gift"`
			Extra  map[string]string `json:"extra"`
		}{Tags: defaults}
		if err := c.Bind(&in); err != nil {
			return err
		}
		owner, sizes := "-", []uint16(nil)
		if in.Owner != nil {
			owner = in.Owner.Owner
		}
		if in.Sizes != nil {
			sizes = *in.Sizes
		}
		return c.Text(200, fmt.Sprintf("%s %d %s %s %q %v %v %s %v", in.Kind, in.labels.ID, in.ID, owner, in.Tags, sizes, in.Levels, in.Image, in.Gift))
	})
	for body, want := range map[string]string{
		"kind=a&id=x&owner=me":                    `a 0 x me ["old"] [] []  false`,
		"tags=a&tags=+b+&tags=&sizes=1&sizes=":    ` 0  - ["a" "b" ""] [1] []  false`,
		"levels=high&image=aGk%3D&gift=yes":       ` 0  - ["old"] [] [1] hi true`,
		"levels=low&levels=high&sizes=1&sizes=-1": `"errors":{"levels[0]":"has to be high","sizes[1]":"must be a whole number, 0 or more"}`,
		"gift=perhaps&image=!&extra=x":            `"errors":{"extra":"must be an object","gift":"must be true or false","image":"must be text in base64"}`,
		"marks=1&stamp=1":                         `"errors":{"marks":"must be an object","stamp":"must be an object"}`,
	} {
		w := s.ask("POST", "/", body, "Content-Type: application/x-www-form-urlencoded", "Accept: application/json")
		if got := w.Body.String(); got != want && (w.Code != 422 || !strings.Contains(got, want)) {
			t.Errorf("%s: got %d %s, want %s", body, w.Code, got, want)
		}
	}
	if defaults[0] != "old" {
		t.Errorf("the list of the handler has %v", defaults)
	}
}

func TestFormIsTheBodyOfAnyMethod(t *testing.T) {
	s := newStage()
	s.router.Handle("/", func(c *megactx.Ctx) error {
		var in labels
		if err := c.Bind(&in); err != nil {
			return err
		}
		return c.Text(200, in.Kind+c.Request().PostFormValue("kind")+c.Request().FormValue("q"))
	})
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "QUERY"} {
		w := s.ask(method, "/?q=1&broken=%zz", "kind=a", "Content-Type: application/x-www-form-urlencoded")
		if got := w.Body.String(); w.Code != 200 || got != "aa1" {
			t.Errorf("%s: got %d %s", method, w.Code, got)
		}
	}
}

// The fields of a struct with a tag of its own are not fields of the struct around
// it.
func TestFieldsOfANamedStructAreUnknownOutsideIt(t *testing.T) {
	s := newStage()
	s.router.Post("/", func(c *megactx.Ctx) error {
		var in struct {
			labels `json:"-"`
			Owner  `json:"of"`
			Name   string `json:"name"`
		}
		return c.Bind(&in)
	})
	w := s.ask("POST", "/", `{"kind":"a","Owner":"me","of":{"Owner":"me"},"name":"x"}`, "Content-Type: application/json")
	if want := `"errors":{"Owner":"is unknown","kind":"is unknown"}`; w.Code != 400 || !strings.Contains(w.Body.String(), want) {
		t.Errorf("got %d %s, want 400 with %s", w.Code, w.Body, want)
	}
}

func TestLenientBindAllowsUnknownFieldsAndDuplicates(t *testing.T) {
	if status, wrong := bound(t, `{"nmae":1,"id":1,"id":2}`, megactx.Lenient()); status != 204 {
		t.Errorf("got %d %v", status, wrong)
	}
	if status, wrong := bound(t, `{"nmae":1,"id":"x"}`, megactx.Lenient()); status != 422 || len(wrong) != 1 || wrong["id"] == "" {
		t.Errorf("a wrong type: got %d %v", status, wrong)
	}
}

func TestHostileBodiesHaveSmallAnswers(t *testing.T) {
	const deep = 9000
	if status, wrong := bound(t, `{"any":`+strings.Repeat(`[`, deep)+`{"a":1,"a":2}`+strings.Repeat(`]`, deep)+`}`); status != 400 || len(wrong) != 1 {
		t.Errorf("a deep body: %d, %d errors", status, len(wrong))
	}
	var many strings.Builder
	for i := range 1000 {
		many.WriteString(`"x` + str(i) + `":1,`)
	}
	if status, wrong := bound(t, `{`+many.String()+`"id":1}`); status != 400 || len(wrong) != 50 {
		t.Errorf("many unknown fields: %d, %d errors", status, len(wrong))
	}
	long := strings.Repeat("한", 1000)
	for body, want := range map[string]int{`{"` + long + `":1}`: 400, `{"from":"` + long + `"}`: 422} { // the error of netip repeats the value
		status, wrong := bound(t, body)
		if status != want || len(wrong) != 1 {
			t.Errorf("a long text: %d, %d errors", status, len(wrong))
		}
		for name, text := range wrong {
			if len(name) > 200 || len(text) > 200 || !utf8.ValidString(name+text) {
				t.Errorf("a long text has %d and %d bytes in the answer: %q, %q", len(name), len(text), name, text)
			}
		}
	}
}

// The type of a list's values is inspected once, not for each value: a small body has many.
func TestManyValuesOfAStructCostLittle(t *testing.T) {
	type value struct{ A, B, C, D, E, F, G, H int }
	type list struct{ Values []value }
	s := newStage()
	s.router.Post("/", func(c *megactx.Ctx) error { return c.Bind(&list{}) })
	allocations := func(values int) float64 {
		body := `{"Values":[` + strings.Repeat("{},", values-1) + "{}]}"
		return testing.AllocsPerRun(10, func() {
			if w := s.ask("POST", "/", body, "Content-Type: application/json"); w.Code != 204 {
				t.Fatalf("got %d %s", w.Code, w.Body)
			}
		})
	}
	if each := (allocations(2000) - allocations(1000)) / 1000; each > 8 {
		t.Errorf("each value costs %.1f allocations", each)
	}
}

func TestCompressedBodyIsRefused(t *testing.T) {
	s := newStage()
	s.router.Post("/", func(c *megactx.Ctx) error { return c.Bind(&parcel{}) })
	for encoding, want := range map[string]int{"gzip": 415, "br": 415, "identity": 204} {
		if w := s.ask("POST", "/", `{"id":1}`, "Content-Type: application/json", "Content-Encoding: "+encoding); w.Code != want {
			t.Errorf("%s: got %d %s, want %d", encoding, w.Code, w.Body, want)
		}
	}
}

// curl -d sends JSON with the type of a form, which has none of the fields.
func TestJSONWithTheTypeOfAFormIsNamed(t *testing.T) {
	s := newStage()
	s.router.Post("/", func(c *megactx.Ctx) error { return c.Bind(&labels{}) })
	for body, want := range map[string]int{` {"kind": "a"}`: 415, `{"kind":"a;b"}`: 415, `{}`: 415, `{kind}=a`: 204, `kind={"a":1}`: 204, `["a"]`: 204} {
		w := s.ask("POST", "/", body, "Content-Type: application/x-www-form-urlencoded", "Accept: application/json")
		if w.Code != want || want == 415 && !strings.Contains(w.Body.String(), "send it as application/json") {
			t.Errorf("%s: got %d %s, want %d", body, w.Code, w.Body, want)
		}
	}
}

// encoding/json would put U+FFFD in place of each byte.
func TestBytesThatAreNotUTF8AreRefused(t *testing.T) {
	for _, body := range []string{"{\"any\":\"caf\xe9\"}", "{\"extra\":{\"caf\xe9\":1}}"} {
		if status, wrong := bound(t, body); status != 400 {
			t.Errorf("%q: got %d %v", body, status, wrong)
		}
		if status, wrong := bound(t, body, megactx.Lenient()); status != 204 {
			t.Errorf("%q, lenient: got %d %v", body, status, wrong)
		}
	}
}

// lookedUp is an input whose validation asks a service.
type lookedUp struct{ err error }

func (in *lookedUp) Validate(context.Context) error { return in.err }

func TestFailureOfAServiceInValidateIsNoInvalidInput(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{fmt.Errorf("look up the owner: %w", lock.ErrUnavailable), 503, "lock.unavailable"},
		{fmt.Errorf("claim the name: %w", lock.ErrNotAcquired), 409, "lock.not_acquired"},
		{fmt.Errorf("ask the store: %w", bus.ErrTimeout), 504, "bus.timeout"},
		{fmt.Errorf("look up the owner: %w", context.DeadlineExceeded), 504, "request.timeout"},
		{fmt.Errorf("ask the store: %w", context.Canceled), 500, "internal"},
		{megactx.Error(400, "order.closed", "The order is closed."), 400, "order.closed"},
		{errors.New("start is after end"), 422, "request.invalid"},
		{megactx.FieldErrors{"id": "is unknown"}, 422, "request.invalid"},
		{fmt.Errorf("name: %w", lock.ErrInvalid), 422, "request.invalid"},
	} {
		s := newStage()
		s.router.Post("/", func(ctx *megactx.Ctx) error { return ctx.Bind(&lookedUp{c.err}) })
		w := s.ask("POST", "/", "", "Accept: application/json")
		if got := w.Body.String(); w.Code != c.status || !strings.Contains(got, fmt.Sprintf(`"code":%q`, c.code)) {
			t.Errorf("%v: got %d %s, want %d %s", c.err, w.Code, got, c.status, c.code)
		}
	}
}

type (
	buyer   struct{ labels }
	seller  struct{ labels }
	member  struct{ buyer }
	visitor struct{ buyer }
)

// encoding/json sets neither of two fields with one name at one depth.
func TestFieldOfAStructThatIsEmbeddedTwiceIsUnknown(t *testing.T) {
	s := newStage()
	s.router.Post("/", func(c *megactx.Ctx) error {
		var in struct {
			buyer
			seller
		}
		if err := c.Bind(&in); err != nil {
			return err
		}
		return c.Text(200, in.buyer.Kind+in.seller.Kind)
	})
	w := s.ask("POST", "/", `{"kind":"a"}`, "Content-Type: application/json")
	if want := `"errors":{"kind":"is unknown"}`; w.Code != 400 || !strings.Contains(w.Body.String(), want) {
		t.Errorf("JSON: got %d %s, want 400 with %s", w.Code, w.Body, want)
	}
	w = s.ask("POST", "/", "kind=a", "Content-Type: application/x-www-form-urlencoded")
	if w.Code != 200 || w.Body.String() != "" {
		t.Errorf("form: got %d %q, want that no field is set", w.Code, w.Body)
	}
}

// encoding/json looks once into a struct inside one that is embedded twice, and sets
// the fields of the first.
func TestFieldBelowAStructThatIsEmbeddedTwiceIsTheFirst(t *testing.T) {
	s := newStage()
	s.router.Post("/", func(c *megactx.Ctx) error {
		var in struct {
			member
			visitor
		}
		if err := c.Bind(&in); err != nil {
			return err
		}
		return c.Text(200, in.member.Kind+" "+in.visitor.Kind)
	})
	for body, kind := range map[string]string{`{"kind":"a"}`: "application/json", "kind=a": "application/x-www-form-urlencoded"} {
		if w := s.ask("POST", "/", body, "Content-Type: "+kind); w.Code != 200 || w.Body.String() != "a " {
			t.Errorf("%s: got %d %q", body, w.Code, w.Body)
		}
	}
}
