package handlers

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
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
	return ctx.Redirect(http.StatusSeeOther, pageOf(ctx.Request().Referer(), ctx.App.Prefix))
}

// page matches the paths of pages. What may follow is an action.
var page = regexp.MustCompile(`^/(products(/new|/\d+(/edit)?)?|[a-z]+)`)

// pageOf returns the page of an address of the shop, without its prefix: of an
// action, the page with its form.
func pageOf(address, prefix string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "/"
	}
	asked, below := strings.CutPrefix(u.Path, prefix)
	path := page.FindString(asked)
	switch {
	case path == "" || !below:
		return "/"
	case path != asked || u.RawQuery == "":
		return path
	}
	return path + "?" + u.RawQuery
}
