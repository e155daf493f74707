package megactx_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/ctx/locale"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/lock"
)

// answered returns the problem that a client receives for the error of a
// handler.
func answered(t *testing.T, s *stage, body string, headers ...string) megactx.Problem {
	t.Helper()
	w := s.ask("POST", "/", body, append(headers, "Content-Type: application/json")...)
	var p megactx.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return p
}

const korean = "Accept-Language: ko-KR,ko;q=0.9,en;q=0.5"

func TestFrameworkAnswersInTheLanguageOfTheClient(t *testing.T) {
	for _, x := range []struct {
		err           error
		english, says string
	}{
		{lock.ErrNotAcquired, "This is busy now. Try again in a moment.", "지금은 사용 중입니다. 잠시 후 다시 시도해 주세요."},
		{errors.New("secret"), "Something went wrong here.", "오류가 발생했습니다."},
		{megactx.Error(409, "own", "Of the app."), "Of the app.", "Of the app."},
	} {
		s := newStage()
		s.router.Post("/", func(*megactx.Ctx) error { return x.err })
		if p := answered(t, s, "{}"); p.Detail != x.english {
			t.Errorf("got %q, want %q", p.Detail, x.english)
		}
		if p := answered(t, s, "{}", korean); p.Detail != x.says || p.Title == "" || p.Title[0] < 0x80 {
			t.Errorf("got %q, %q, want %q", p.Title, p.Detail, x.says)
		}
	}
	if page := newStage().ask("GET", "/nowhere", "", korean); !strings.Contains(page.Body.String(), `<html lang="ko">`) || !strings.Contains(page.Body.String(), "찾을 수 없음") ||
		page.Header().Get("Content-Language") != "ko" {
		t.Errorf("the page is %v %s", page.Header(), page.Body)
	}
}

type booking struct {
	Seats int `json:"seats"`
}

func (b *booking) Validate(c *megactx.Ctx) error {
	if b.Seats > 9 {
		return megactx.FieldErrors{"seats": c.T("booking.toomany", "max", 9)}
	}
	return megactx.FieldErrors{"seats": "booking.none"}
}

type plainBooking struct{ booking }

func (*plainBooking) Validate(ctx context.Context) error {
	if _, ok := megactx.From(ctx); !ok {
		return errors.New("without a Ctx")
	}
	return errors.New("booking.none")
}

// reserving is a stage with texts that binds a new value for each request.
func reserving(t *testing.T, seen *megactx.FieldErrors, value func() any) *stage {
	t.Helper()
	texts, err := locale.Parse(nil, files(
		"ko.yaml", "booking: {none: 좌석을 선택해 주세요., toomany: '{max}석까지 예약할 수 있습니다.'}\nmega: {field: {integer: 숫자만 입력해 주세요.}}",
		"en.yaml", "booking: {none: Choose a seat., toomany: 'You can book {max} seats.'}\nmega: {field: {integer: has to be digits}}"))
	if err != nil {
		t.Fatal(err)
	}
	s := newStage()
	s.host.Locales = texts
	s.router.Post("/", func(c *megactx.Ctx) error {
		err := c.Bind(value())
		errors.As(err, seen)
		return err
	})
	return s
}

func TestMessagesOfValidateMayBeKeys(t *testing.T) {
	var seen megactx.FieldErrors
	s := reserving(t, &seen, func() any { return &booking{} })
	for body, want := range map[string]string{
		`{"seats":0}`:   "좌석을 선택해 주세요.",
		`{"seats":10}`:  "9석까지 예약할 수 있습니다.",
		`{"seats":"x"}`: "숫자만 입력해 주세요.", // the app's own text for the framework's
		`{"seat":1}`:    "",
	} {
		p := answered(t, s, body, korean)
		if want != "" && (p.Errors["seats"] != want || p.Detail != "seats "+want) {
			t.Errorf("%s: got %+v, want %s", body, p, want)
		}
		if want == "" && p.Errors["seat"] != "알 수 없는 항목입니다" {
			t.Errorf("%s: got %+v", body, p)
		}
		for field, text := range p.Errors {
			if seen[field] != text {
				t.Errorf("%s: the handler sees %v", body, seen)
			}
		}
	}
	if line := s.last(t); !strings.Contains(line["error"].(string), "request.") {
		t.Errorf("the log says %v", line)
	}
	if p := answered(t, s, `{"seats":0}`, "Accept-Language: fr"); p.Errors["seats"] != "Choose a seat." {
		t.Errorf("in the default language: %+v", p)
	}
	s = reserving(t, &seen, func() any { return &plainBooking{} })
	if p := answered(t, s, `{"seats":0}`, korean); p.Detail != "좌석을 선택해 주세요." || p.Status != 422 {
		t.Errorf("with a plain context: %+v", p)
	}
}

// In env dev, an app reads its changed files again.
func TestAnswerHasTheChangedTextsOfTheApp(t *testing.T) {
	texts := func(text string) *locale.Texts {
		t.Helper()
		l, err := locale.Parse(nil, fstest.MapFS{"en.yaml": {Data: []byte("shop: {closed: " + text + "}")}})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	s := newStage()
	s.host.Locales = texts("Closed.")
	s.host.Refresh = func() (*request.Files, error) { return &request.Files{Locales: texts("Closed on Sundays.")}, nil }
	s.router.Post("/", func(c *megactx.Ctx) error { return c.Bind(&visit{}) })
	s.router.Post("/error", func(*megactx.Ctx) error { return megactx.Error(409, "shop.closed", "shop.closed") })
	if w := s.ask("POST", "/error", "{}", "Content-Type: application/json"); !strings.Contains(w.Body.String(), "Closed on Sundays.") {
		t.Errorf("an error is answered with %s", w.Body)
	}
	if p := answered(t, s, "{}"); p.Errors["day"] != "Closed on Sundays." {
		t.Errorf("an invalid field is answered with %v", p.Errors)
	}
}

type visit struct{}

func (*visit) Validate() error { return megactx.FieldErrors{"day": "shop.closed"} }
