package request

import (
	"cmp"
	"embed"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/megaframework/mega/ctx/locale"
)

//go:embed texts
var textFiles embed.FS

// ownTexts returns the texts of the framework for clients, in English and
// Korean.
var ownTexts = sync.OnceValue(func() *locale.Texts {
	texts, err := locale.Parse([]string{"en", "ko"}, textFiles)
	if err != nil { // embedded, and tested
		panic(err)
	}
	return texts
})

// phrase is a text of the framework with its values.
type phrase struct {
	key string // without "mega."
	kv  []any
}

// english returns a phrase as the log has it.
func (p phrase) english() string {
	text, _ := ownTexts().Text("en", "mega."+p.key, p.kv) // its keys and values are tested
	return text
}

// fieldTexts returns the keys of the framework's texts about fields, by their
// English text.
var fieldTexts = sync.OnceValue(func() map[string]string {
	keys := map[string]string{}
	for _, name := range []string{
		"text", "boolean", "integer", "natural", "number", "base64", "list", "object", "time", "too_large", "unknown", "twice",
	} {
		keys[AboutField(name)] = "mega.field." + name
	}
	return keys
})

// AboutField returns the English text about a field of an input.
func AboutField(name string) string { return phrase{key: "field." + name}.english() }

// words translates the texts of one answer.
type words struct {
	app    *locale.Texts
	locale string // of the app, or ""
	own    string // of the framework
}

// wordsOf returns the words for a client. The locale is the app's, if the app
// has texts, or else the client's choice.
func wordsOf(app *locale.Texts, locale string, r *http.Request) words {
	wanted := []string{locale}
	if locale == "" {
		wanted = wantedLocales(r)
	}
	return words{app, locale, ownTexts().Match(wanted...)}
}

// phrase returns a text of the framework, which the app may have replaced.
func (w words) phrase(p phrase) string {
	key := "mega." + p.key
	if text, err := w.app.Text(w.locale, key, p.kv); err == nil {
		return text
	}
	text, _ := ownTexts().Text(w.own, key, p.kv) // as in English
	return text
}

// message returns the text of an app's message. If the message is a key of the
// app's catalogues, that is the key's text; if it is a text of the framework, its
// translation; otherwise the message itself.
func (w words) message(m string) string {
	if text, err := w.app.Text(w.locale, m, nil); err == nil {
		return text
	}
	if key, known := fieldTexts()[m]; known {
		return w.phrase(phrase{key: strings.TrimPrefix(key, "mega.")})
	}
	return m
}

// title returns the title of a status.
func (w words) title(status int) string {
	key := strconv.Itoa(status)
	if text := w.phrase(phrase{key: "title." + key}); text != "mega.title."+key {
		return text
	}
	return http.StatusText(status)
}

// translate words an answer for its client.
func (w words) translate(p *problem) {
	p.lang = cmp.Or(w.locale, w.own)
	if p.Title == http.StatusText(p.Status) {
		p.Title = w.title(p.Status)
	}
	switch {
	case p.says.key != "":
		p.Detail = w.phrase(p.says)
	case p.Errors == nil: // Bind has translated the errors of fields
		p.Detail = w.message(p.Detail)
	}
}

// Word translates the messages about fields in an error of Bind, whose work this
// is. The cause keeps them as they were, for the log.
func (w *Work) Word(e *Error) {
	words := wordsOf(w.Host.Files().Locales, w.Locale(), w.Exchange.record.request)
	translated := Fields{}
	for name, text := range e.fields {
		translated[name] = words.message(text)
	}
	e.fields, e.detail = translated, translated.Error()
}
