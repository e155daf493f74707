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
	{"products as JSON", "GET", "/products", "", "Accept: application/json", 200, `[{"id":1,"name":"Lamp","price":9.50,"stock":3,"version":1}]`},
	{"a product as a page", "GET", "/products/1", "", "", 200, "<h1><bdi>Lamp</bdi></h1>"},
	{"a product as JSON", "GET", "/products/1", "", "Accept: application/json", 200, `{"id":1,"name":"Lamp","price":9.50,"stock":3,"version":1}`},
	{"no such product", "GET", "/products/99", "", "Accept: application/json", 404, "product.not_found"},
	{"no such product, on a page", "GET", "/products/99", "", "", 404, "product.not_found"},
	{"a product that is no number", "GET", "/products/lamp", "", "Accept: application/json", 404, "product.not_found"},
	{"an address that is not there", "GET", "/nowhere", "", "Accept: application/json", 404, "request.not_found"},
	{"a method that is not there", "PATCH", "/products/1", "", "Accept: application/json", 405, "request.method_not_allowed"},
	{"create from a form", "POST", "/products", "name=Chair&price=20&stock=1", asForm, 303, "/products/2"},
	{"create without a name", "POST", "/products", `{"name":" ","price":1,"stock":1}`, asJSON, 422, "request.invalid"},
	{"create without a stock", "POST", "/products", `{"name":"x","price":1}`, asJSON, 422, "request.invalid"},
	{"create with a stock below nothing", "POST", "/products", `{"name":"x","price":1,"stock":-1}`, asJSON, 422, "request.invalid"},
	{"create with a price of three places", "POST", "/products", `{"name":"x","price":1.005,"stock":1}`, asJSON, 422, `"errors":{"price":"must be a number with at most two decimal places"}`},
	{"create from no JSON", "POST", "/products", `{"name":`, asJSON, 400, "request.bad_body"},
	{"create from nothing", "POST", "/products", "", asJSON, 400, "request.bad_body"},
	{"create with a name that is a number", "POST", "/products", `{"name":1,"price":1,"stock":1}`, asJSON, 422, "request.invalid"},
	{"create from something else", "POST", "/products", "<x/>", "Content-Type: text/xml", 415, "request.unsupported_media_type"},
	{"create from a form with mistakes", "POST", "/products", "name=&price=x&stock=many", asForm, 422, `id="price-error"`},
	{"replace", "PUT", "/products/1", `{"name":"Light","price":10,"stock":7,"version":1}`, asJSON, 200, `{"id":1,"name":"Light","price":10.00,"stock":7,"version":2}`},
	{"replace from a form", "POST", "/products/1", "name=Light&price=10&stock=7&version=1", asForm, 303, "/products/1"},
	{"replace from a form with mistakes", "POST", "/products/1", "name=Light&price=10&stock=-1&version=1", asForm, 422, `id="stock-error"`},
	{"replace with a mistake", "PUT", "/products/1", `{"name":"","price":10,"stock":7,"version":1}`, asJSON, 422, "request.invalid"},
	{"replace without a version", "PUT", "/products/1", `{"name":"Light","price":10,"stock":7}`, asJSON, 422, `"version":"is required"`},
	{"replace an old version", "PUT", "/products/1", `{"name":"Light","price":10,"stock":7,"version":0}`, asJSON, 409, "product.changed"},
	{"replace an old version from a form", "POST", "/products/1", "name=Light&price=10&stock=7&version=0", asForm, 409, "<h1>Somebody was faster</h1>"},
	{"the form of a new product", "GET", "/products/new", "", "", 200, "<h1>Add a product</h1>"},
	{"the form of a product", "GET", "/products/1/edit", "", "", 200, `name="version" value="1"`},
	{"the form of no product", "GET", "/products/99/edit", "", "", 404, "product.not_found"},
	{"replace what is not there", "PUT", "/products/99", `{"name":"x","price":1,"stock":1,"version":1}`, asJSON, 404, "product.not_found"},
	{"delete", "DELETE", "/products/1", "", "", 204, ""},
	{"delete from a form", "POST", "/products/1/delete", "", asForm, 303, "/products"},
	{"delete what is not there", "DELETE", "/products/99", "", "Accept: application/json", 404, "product.not_found"},
	{"buy", "POST", "/products/1/buy", `{"quantity":2}`, asJSON, 200, `{"stock":1,"sale":1}`},
	{"buy one, if nothing is said", "POST", "/products/1/buy", `{}`, asJSON, 200, `{"stock":2,"sale":1}`},
	{"buy from a form", "POST", "/products/1/buy", "quantity=1", asForm, 303, "/products/1"},
	{"buy without a body", "POST", "/products/1/buy", "", "Accept: application/json", 200, `{"stock":2,"sale":1}`},
	{"buy more than there is", "POST", "/products/1/buy", `{"quantity":4}`, asJSON, 409, "product.sold_out"},
	{"buy more than there is, from a form", "POST", "/products/1/buy", "quantity=4", asForm, 409, `role="alert">There is not enough of it: the stock is 3.</p>`},
	{"buy nothing", "POST", "/products/1/buy", `{"quantity":0}`, asJSON, 422, "request.invalid"},
	{"buy nothing, from a form", "POST", "/products/1/buy", "quantity=0", asForm, 422, `id="quantity-error">must be 1 to`},
	{"buy what is not there, from a form", "POST", "/products/99/buy", "quantity=1", asForm, 404, "product.not_found"},
	{"buy what is not there", "POST", "/products/99/buy", `{"quantity":1}`, asJSON, 404, "product.not_found"},
	{"a page of another site buys", "POST", "/products/1/buy", "", "Sec-Fetch-Site: cross-site", 403, "request.cross_origin"},
	{"the style sheet", "GET", "/shop.css", "", "", 200, "--paper"},
}

func TestEachExchangeHasItsAnswer(t *testing.T) {
	for _, x := range exchanges {
		t.Run(x.name, func(t *testing.T) {
			kit := offline(t)
			kit.Post("/products", lamp(3)).Status(http.StatusCreated).Header("Location", "/products/1")
			headers := []string{"Accept: */*"}
			if x.header != "" {
				headers = append(headers, x.header)
			}
			a := kit.Do(x.method, x.path, strings.NewReader(x.body), headers...).Recorded
			location, body := a.Header().Get("Location"), a.Body.String()
			if a.Code != x.status || !strings.Contains(body+location, x.says) {
				t.Errorf("got %d %s %s, want %d with %q", a.Code, location, body, x.status, x.says)
			}
			is, problem := a.Header().Get("Content-Type"), "application/problem+json"
			if strings.HasPrefix(body, `{"type":`) && is != problem {
				t.Errorf("a problem is %s, want %s", is, problem)
			}
		})
	}
}

// lamp is a product with a stock.
func lamp(stock int) map[string]any {
	return map[string]any{"name": "Lamp", "price": 9.5, "stock": stock}
}
