package handlers

import (
	"maps"
	"net/url"
	"strconv"

	"github.com/megaframework/mega"
)

// perPage is the number of rows on a page.
const perPage = 20

// paging leads from one page of a list to the others.
type paging struct {
	Page, Pages    int
	Previous, Next string // addresses, or ""
}

// asked returns the number of the requested page, from 1.
func asked(ctx *mega.Ctx) int {
	n, err := strconv.Atoi(ctx.Query("page"))
	if err != nil {
		return 1
	}
	return min(max(n, 1), 1_000_000)
}

// skipped returns the number of rows before a page.
func skipped(page int) int { return (page - 1) * perPage }

// newPaging returns the paging of a list that has a number of rows.
func newPaging(ctx *mega.Ctx, page, rows int) paging {
	p := paging{Page: page, Pages: max((rows+perPage-1)/perPage, 1)}
	if page > 1 {
		p.Previous = address(ctx, min(page-1, p.Pages))
	}
	if page < p.Pages {
		p.Next = address(ctx, page+1)
	}
	return p
}

// address returns the address of another page of the same list.
func address(ctx *mega.Ctx, page int) string {
	query := url.Values{}
	maps.Copy(query, ctx.Request().URL.Query())
	query.Set("page", strconv.Itoa(page))
	return "?" + query.Encode()
}
