package handlers

import (
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/megaframework/mega"
)

// Language stores the language of the pages in a cookie, which the framework reads,
// and shows the page again.
func Language(ctx *mega.Ctx) error {
	var in struct {
		To string `form:"to"`
	}
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	const year = 365 * 24 * time.Hour
	http.SetCookie(ctx.Writer(), &http.Cookie{
		Name: "lang", Value: ctx.WithLocale(in.To).Locale(), Path: "/", MaxAge: int(year.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: ctx.Request().TLS != nil,
	})
	return ctx.Redirect(http.StatusSeeOther, pageOf(ctx.Request().Referer()))
}

// page matches the paths of pages. What may follow is an action.
var page = regexp.MustCompile(`^/(products(/new|/\d+(/edit)?)?|[a-z]+)`)

// pageOf returns the page of an address of the shop: of an action, the page with
// its form.
func pageOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "/"
	}
	path := page.FindString(u.Path)
	switch {
	case path == "":
		return "/"
	case path != u.Path || u.RawQuery == "":
		return path
	}
	return path + "?" + u.RawQuery
}
