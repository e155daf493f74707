package main

import (
	"net/http"
	"strings"
	"testing"
)

// Each line is a request to a shop that has one product, a lamp with a stock
// of 3 at /products/1, and what is answered.
var exchanges = []struct {
	name         string
	method, path string
	body         string
	header       string
	status       int
	says         string // part of the body, or the code of the problem
}{
	{"home leads to the products", "GET", "/", "", "", 302, "/products"},
	{"products as a page", "GET", "/products", "", "Accept: text/html,application/xhtml+xml,*/*;q=0.8", 200, "<h1>Products</h1>"},
	{"products as a page for whoever says nothing", "GET", "/products", "", "", 200, "<h1>Products</h1>"},
	{"products as JSON", "GET", "/products", "", "Accept: application/json", 200, `[{"id":1,"name":"Lamp","price":9.50,"stock":3}]`},
	{"a product as a page", "GET", "/products/1", "", "", 200, "<h1>Lamp</h1>"},
	{"a product as JSON", "GET", "/products/1", "", "Accept: application/json", 200, `{"id":1,"name":"Lamp","price":9.50,"stock":3}`},
	{"no such product", "GET", "/products/99", "", "Accept: application/json", 404, "product.not_found"},
	{"no such product, on a page", "GET", "/products/99", "", "", 404, "product.not_found"},
	{"a product that is no number", "GET", "/products/lamp", "", "Accept: application/json", 404, "product.not_found"},
	{"an address that is not there", "GET", "/nowhere", "", "Accept: application/json", 404, "request.not_found"},
	{"a method that is not there", "PATCH", "/products/1", "", "Accept: application/json", 405, "request.method_not_allowed"},
	{"create from a form", "POST", "/products", "name=Chair&price=20&stock=1", asForm, 303, "/products/2"},
	{"create without a name", "POST", "/products", `{"name":" ","price":1,"stock":1}`, asJSON, 422, "request.invalid"},
	{"create without a stock", "POST", "/products", `{"name":"x","price":1}`, asJSON, 422, "request.invalid"},
	{"create with a stock below nothing", "POST", "/products", `{"name":"x","price":1,"stock":-1}`, asJSON, 422, "request.invalid"},
	{"create with a price of three places", "POST", "/products", `{"name":"x","price":1.005,"stock":1}`, asJSON, 422, "request.invalid"},
	{"create from no JSON", "POST", "/products", `{"name":`, asJSON, 400, "request.bad_body"},
	{"create from nothing", "POST", "/products", "", asJSON, 400, "request.bad_body"},
	{"create with a name that is a number", "POST", "/products", `{"name":1,"price":1,"stock":1}`, asJSON, 422, "request.invalid"},
	{"create from something else", "POST", "/products", "<x/>", "Content-Type: text/xml", 415, "request.unsupported_media_type"},
	{"create from a form with mistakes", "POST", "/products", "name=&price=x&stock=many", asForm, 422, `id="price-error"`},
	{"replace", "PUT", "/products/1", `{"name":"Light","price":10,"stock":7}`, asJSON, 200, `{"id":1,"name":"Light","price":10.00,"stock":7}`},
	{"replace from a form", "POST", "/products/1", "name=Light&price=10&stock=7", asForm, 303, "/products/1"},
	{"replace from a form with mistakes", "POST", "/products/1", "name=Light&price=10&stock=-1", asForm, 422, `id="stock-error"`},
	{"replace with a mistake", "PUT", "/products/1", `{"name":"","price":10,"stock":7}`, asJSON, 422, "request.invalid"},
	{"replace what is not there", "PUT", "/products/99", `{"name":"x","price":1,"stock":1}`, asJSON, 404, "product.not_found"},
	{"delete", "DELETE", "/products/1", "", "", 204, ""},
	{"delete from a form", "POST", "/products/1/delete", "", asForm, 303, "/products?deleted=1"},
	{"delete what is not there", "DELETE", "/products/99", "", "Accept: application/json", 404, "product.not_found"},
	{"buy", "POST", "/products/1/buy", `{"quantity":2}`, asJSON, 200, `{"stock":1,"sale":1}`},
	{"buy one, if nothing is said", "POST", "/products/1/buy", `{}`, asJSON, 200, `{"stock":2,"sale":1}`},
	{"buy from a form", "POST", "/products/1/buy", "quantity=1", asForm, 303, "/products/1?bought=1"},
	{"buy without a body", "POST", "/products/1/buy", "", "Accept: application/json", 200, `{"stock":2,"sale":1}`},
	{"buy more than there is", "POST", "/products/1/buy", `{"quantity":4}`, asJSON, 409, "product.sold_out"},
	{"buy more than there is, from a form", "POST", "/products/1/buy", "quantity=4", asForm, 409, "product.sold_out"},
	{"buy nothing", "POST", "/products/1/buy", `{"quantity":0}`, asJSON, 422, "request.invalid"},
	{"buy what is not there", "POST", "/products/99/buy", `{"quantity":1}`, asJSON, 404, "product.not_found"},
	{"a page of another site buys", "POST", "/products/1/buy", "", "Sec-Fetch-Site: cross-site", 403, "request.cross_origin"},
	{"the style sheet", "GET", "/shop.css", "", "", 200, "--paper"},
}

func TestExchanges(t *testing.T) {
	executable, environ := binary(t)
	for _, x := range exchanges {
		t.Run(x.name, func(t *testing.T) {
			s := open(t, executable, 1, environ...)[0]
			if path := s.stock(t, 3); path != "/products/1" {
				t.Fatalf("the lamp is at %s", path)
			}
			var headers []string
			if x.header != "" {
				headers = append(headers, x.header)
			}
			a, err := s.send(x.method, x.path, x.body, headers...)
			if err != nil {
				t.Fatal(err)
			}
			if a.status != x.status || !strings.Contains(a.body+a.header.Get("Location"), x.says) {
				t.Errorf("got %d %s %s, want %d with %q", a.status, a.header.Get("Location"), a.body, x.status, x.says)
			}
			if p := "application/problem+json"; a.code() != "" && a.header.Get("Content-Type") != p {
				t.Errorf("a problem is %s, want %s", a.header.Get("Content-Type"), p)
			}
		})
	}
}

func TestCreatedProductHasALocation(t *testing.T) {
	executable, environ := binary(t)
	s := open(t, executable, 1, environ...)[0]
	a, err := s.send("POST", "/products", `{"name":"Lamp","price":1,"stock":1}`, asJSON)
	if err != nil || a.status != http.StatusCreated || a.header.Get("Location") != "/products/1" {
		t.Errorf("got %d at %q, %v, want 201 at /products/1", a.status, a.header.Get("Location"), err)
	}
}
