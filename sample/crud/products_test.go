package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/megaframework/mega/megatest"
)

// browser sends forms and wants pages, in a language.
type browser struct {
	*megatest.Kit
	language string
}

func (b browser) headers(more ...string) []string {
	return append(more, "Accept: text/html", "Accept-Language: "+b.language)
}

func (b browser) get(path string) *megatest.Response { return b.Get(path, b.headers()...) }

func (b browser) post(path, form string) *megatest.Response {
	return b.Post(path, strings.NewReader(form), b.headers(asForm)...)
}

// after returns the page to which an action leads, with what the action tells.
func (b browser) after(action *megatest.Response) *megatest.Response {
	header := action.Status(http.StatusSeeOther).Recorded.Header()
	cookie, _, _ := strings.Cut(header.Get("Set-Cookie"), ";")
	return b.Get(header.Get("Location"), b.headers("Cookie: "+cookie)...)
}

// Both pages of a form were opened at version 1, and one was sent.
func TestEditOfAnOldVersionIsRefusedWithBothValues(t *testing.T) {
	b := browser{offline(t), "en"}
	b.Post("/products", lamp(5)).Status(http.StatusCreated)
	b.post("/products/1", "name=Light&price=10&stock=5&version=1").Status(http.StatusSeeOther)
	page := b.post("/products/1", "name=Lantern&price=9.50&stock=7&version=1").Status(http.StatusConflict)
	for _, want := range []string{"<td><bdi>Light</bdi></td><td><bdi>Lantern</bdi></td>", "<td>10.00</td><td>9.50</td>", "<td>5</td><td>7</td>", `name="version" value="2"`, `value="Lantern"`} {
		page.Contains(want)
	}
	b.post("/products/1/buy", "quantity=1").Status(http.StatusSeeOther) // a sale is a later version, too
	b.post("/products/1", "name=Lantern&price=9.50&stock=7&version=2").Status(http.StatusConflict).Contains("<td>4</td><td>7</td>")
	b.post("/products/1", "name=Lantern&price=9.50&stock=7&version=3").Status(http.StatusSeeOther)
	b.get("/products/1").Contains("<h1><bdi>Lantern</bdi></h1>")
}

// The text around a name that is written from right to left does not change the order of
// its words.
func TestNamesHaveADirectionOfTheirOwn(t *testing.T) {
	b := browser{offline(t), "en"}
	b.Post("/products", map[string]any{"name": "مصباح 40W", "price": 9.5, "stock": 5}).Status(http.StatusCreated)
	b.post("/products/1/buy", "quantity=1").Status(http.StatusSeeOther)
	for _, path := range []string{"/products", "/products/1", "/ledger"} {
		b.get(path).Contains("<bdi>مصباح 40W</bdi>")
	}
	b.get("/products/1/edit").Contains(`dir="auto" value="مصباح 40W"`).Contains(isolated.Replace("Back to [مصباح 40W]"))
	b.post("/products/1", "name=مصباح&price=1&stock=1&version=1").Status(http.StatusConflict).Contains("<td><bdi>مصباح 40W</bdi></td><td><bdi>مصباح</bdi></td>")
}

// isolated replaces [ and ] by the characters that keep the direction of a name apart
// from its sentence's.
var isolated = strings.NewReplacer("[", "\u2068", "]", "\u2069")

func TestActionsTellWhatTheyHaveDone(t *testing.T) {
	for language, texts := range map[string][]string{
		"en": {"[책상] was added.", "One piece of [책상] was bought.", "2 pieces of [책상] were bought.", "[램프] was saved.", "[램프] was removed."},
		"ko": {"[책상]을 추가했습니다.", "[책상]을 1개 구매했습니다.", "[책상]을 2개 구매했습니다.", "[램프]를 저장했습니다.", "[램프]를 삭제했습니다."},
	} {
		b := browser{offline(t), language}
		for i, action := range []func() *megatest.Response{
			func() *megatest.Response { return b.post("/products", "name=책상&price=9.50&stock=9") },
			func() *megatest.Response { return b.post("/products/1/buy", "quantity=1") },
			func() *megatest.Response { return b.post("/products/1/buy", "quantity=2") },
			func() *megatest.Response { return b.post("/products/1", "name=램프&price=9.50&stock=9&version=3") },
			func() *megatest.Response { return b.post("/products/1/delete", "") },
		} {
			b.after(action()).Status(http.StatusOK).Contains(fmt.Sprintf(`role="status">%s</p>`, isolated.Replace(texts[i])))
		}
		if again := b.get("/products").Body(); strings.Contains(again, `role="status"`) {
			t.Errorf("a second page tells it again:\n%s", again)
		}
	}
}

// A cookie of another origin can have any content.
func TestForeignFlashIsNotShown(t *testing.T) {
	b := browser{offline(t), "en"}
	for _, cookie := range []string{"!", "bnVsbA", "WyJlcnJvci5iYWNrIl0", "W10", "WyJmbGFzaC5ib3VnaHQiXQ"} { // null, ["error.back"], [], ["flash.bought"]
		b.Get("/products", b.headers("Cookie: flash="+cookie)...).Status(http.StatusOK)
	}
}

// PostgreSQL refuses some texts that SQLite stores, and SQLite refuses long patterns.
func TestTextThatADatabaseRefusesDoesNotReachIt(t *testing.T) {
	b := browser{offline(t), "en"}
	b.post("/products", "name=Lamp&price=1&stock=1").Status(http.StatusSeeOther)
	for _, name := range []string{"a%00b", "a%0Ab", "a%FFb"} {
		b.post("/products", "name="+name+"&price=1&stock=1").Status(http.StatusUnprocessableEntity).Contains("has characters that are not allowed")
		b.post("/products/1", "name="+name+"&price=1&stock=1&version=1").Status(http.StatusUnprocessableEntity)
	}
	for _, text := range []string{"%00", "%FF", strings.Repeat("a", 60_000)} {
		b.Get("/products?q="+text).Status(http.StatusOK).Header("X-Total-Count", "0")
	}
}

// The link to a product is its name: without a visible character nobody can find it.
func TestANameCanBeSeen(t *testing.T) {
	b := browser{offline(t), "en"}
	for _, name := range []string{"\u200b", "\u200b \u200b", "\u202e\u2069", "\ufeff"} {
		b.post("/products", "name="+name+"&price=1&stock=1").Status(http.StatusUnprocessableEntity).Contains(`id="name-error">is required</span>`)
	}
	for _, name := range []string{"👩\u200d🚀", "می\u200cخواهم", "🏴\U000e0067\U000e0062\U000e007f"} { // with invisible characters that they need
		b.post("/products", "name="+name+"&price=1&stock=1").Status(http.StatusSeeOther)
		b.get("/products").Contains("<bdi>" + name + "</bdi>")
	}
}

func TestANameLeavesTheTextAroundItAsItIs(t *testing.T) {
	b := browser{offline(t), "en"}
	for _, name := range []string{"a\u202eb", "a\u2066b", "a\u2069b", "a" + strings.Repeat("\u0301", 150)} {
		b.post("/products", "name="+name+"&price=1&stock=1").Status(http.StatusUnprocessableEntity).Contains("has characters that are not allowed")
	}
	for _, name := range []string{"שָׁ֑לוֹם", "e\u0323\u0302\u0301", "a\u200fb", strings.Repeat("n\u0303", 100)} {
		b.post("/products", "name="+name+"&price=1&stock=1").Status(http.StatusSeeOther)
	}
}

func TestFieldErrorsAreBesideTheirFields(t *testing.T) {
	for language, texts := range map[string][3]string{
		"en": {"is required", "must be a number with at most two decimal places", "must be a whole number"},
		"ko": {"입력해 주세요", "소수점 아래 두 자리까지의 숫자여야 합니다", "정수여야 합니다"},
	} {
		b := browser{offline(t), language}
		b.Post("/products", lamp(3)).Status(http.StatusCreated)
		for _, path := range []string{"/products", "/products/1"} {
			page := b.post(path, "name=+&price=1.005&stock=many&version=1").Status(http.StatusUnprocessableEntity).Contains(`value="1.005"`)
			for i, field := range []string{"name", "price", "stock"} {
				page.Contains(fmt.Sprintf(`id="%s-error">%s</span>`, field, texts[i]))
			}
		}
	}
}

func TestListIsSearchedAndPaged(t *testing.T) {
	b := browser{offline(t), "en"}
	for i := range 21 {
		b.Post("/products", map[string]any{"name": fmt.Sprintf("Lamp %02d", i), "price": 1, "stock": 1}).Status(http.StatusCreated)
	}
	b.Post("/products", map[string]any{"name": "Chair <b>", "price": 1, "stock": 0}).Status(http.StatusCreated)
	b.get("/products").Contains("Page 1 of 2").Contains("Chair &lt;b&gt;").Contains("sold out")
	b.get("/products?q=LAMP").Contains(isolated.Replace("21 products have “[LAMP]” in their name.")).Contains(`<a href="?page=2&amp;q=LAMP" rel="next">`)
	b.get("/products?q=LAMP&page=2").Contains("Lamp 20")
	b.get("/products?q=<b>").Contains(isolated.Replace("One product has “[&lt;b&gt;]” in its name."))
	b.Get("/products?q=chair").Header("X-Total-Count", "1").Contains(`[{"id":22,"name":"Chair`)
}
