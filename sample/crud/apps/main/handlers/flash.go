package handlers

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/megaframework/mega"
)

// flashCookie holds what an action has done until the next page shows it.
const flashCookie = "flash"

// flash has the next page show a text, which is translated there. The values of
// kv are texts.
func flash(ctx *mega.Ctx, key string, kv ...string) {
	note, err := json.Marshal(append([]string{key}, kv...))
	if err != nil { // its parts are texts
		panic(err)
	}
	setFlash(ctx, base64.RawURLEncoding.EncodeToString(note), 60)
}

func setFlash(ctx *mega.Ctx, value string, seconds int) {
	http.SetCookie(ctx.Writer(), &http.Cookie{
		Name: flashCookie, Value: value, Path: "/", MaxAge: seconds,
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: ctx.Request().TLS != nil,
	})
}

// flashed returns the text that the action before has left, once.
func flashed(ctx *mega.Ctx) string {
	cookie, err := ctx.Request().Cookie(flashCookie)
	if err != nil {
		return ""
	}
	setFlash(ctx, "", -1)
	var note []string
	text, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil || json.Unmarshal(text, &note) != nil || len(note) == 0 || !strings.HasPrefix(note[0], "flash.") {
		return ""
	}
	kv := make([]any, len(note)-1)
	for i := range kv {
		kv[i] = note[i+1]
	}
	return ctx.T(note[0], kv...)
}
