// Package mask hides credentials in text that people and logs see. Every part
// of the program that shows a configured value or the error of a server masks
// it here, so that the same URL looks the same everywhere.
//
// Of a URL, the user info and the value of each query parameter are masked:
// which of them is a credential depends on the server, and a list of names is
// never complete.
package mask

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Mark stands in the place of a masked text.
const Mark = "***"

var (
	// A list of NATS servers has a URL for each. Other lists have one scheme, so
	// that ",x://" in one of them is a part of a password.
	serverList = regexp.MustCompile(`(?i)^\s*(?:nats|tls|wss?)://`)
	nextServer = regexp.MustCompile(`(?i),\s*(?:nats|tls|wss?)://`)
	parameter  = regexp.MustCompile(`([?&;])([^=&;?]*)(=[^&;]*)?`)
	wholeURL   = regexp.MustCompile(`^\s*[A-Za-z][A-Za-z0-9+.-]*://`)
	insideText = regexp.MustCompile("[A-Za-z][A-Za-z0-9+.-]*://[^\\s\"'`<>]*")
	credential = regexp.MustCompile(`(?i)pass|secret|token|pwd|credential|api_?key`)
)

// URL returns s with its user info and its query values masked. s may be
// malformed: everything up to the last "@" counts as user info, because a "/",
// "?" or "@" in a password may be unescaped. s may also lack its scheme, or
// list several URLs with commas between them.
func URL(s string) string {
	return rewrite(s, func(string) string { return Mark }, maskParameter)
}

// Place returns s with only its credentials masked, for comparing the places of
// two URLs: a new password is the same place, another database is not. The result
// is not for display: it has the names of users.
func Place(s string) string {
	user := func(info string) string {
		name, _, ok := strings.Cut(info, ":")
		if !ok && serverList.MatchString(s) {
			return Mark // a token
		}
		return name
	}
	return rewrite(s, user, func(p string) string {
		if name, _, _ := strings.Cut(p, "="); credential.MatchString(name) {
			return maskParameter(p)
		}
		return p
	})
}

// rewrite returns s with the user info and each parameter of its query replaced.
func rewrite(s string, user, parameterOf func(string) string) string {
	if first, others, ok := cutList(s); ok {
		return rewrite(first, user, parameterOf) + "," + rewrite(others, user, parameterOf)
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if ok {
		scheme += "://"
	} else {
		scheme, rest = "", s
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		scheme, rest = scheme+user(rest[:at]), rest[at:]
	}
	return scheme + parameter.ReplaceAllStringFunc(rest, parameterOf)
}

// cutList splits the first URL off a list of NATS servers.
func cutList(s string) (first, others string, ok bool) {
	if at := nextServer.FindStringIndex(s); at != nil && serverList.MatchString(s) {
		return s[:at[0]], s[at[0]+1:], true
	}
	return s, "", false
}

// maskParameter returns a query parameter with its value masked.
func maskParameter(p string) string {
	name, value, ok := strings.Cut(p, "=")
	switch {
	case !ok && len(p) > 1: // a parameter without a value may itself be the credential
		return p[:1] + Mark
	case value == "":
		return p
	}
	return name + "=" + Mark
}

// Text returns s with every URL in it masked. Text that is a URL as a whole is
// masked as [URL] does, which also hides a password with white space or quotes.
func Text(s string) string {
	switch {
	case !strings.Contains(s, "://"): // the usual case, checked without a regular expression
		return s
	case wholeURL.MatchString(s) && (!strings.ContainsAny(s, "\n\"") || !strings.ContainsFunc(s, unicode.IsSpace)): // a quote and white space belong to an error
		return URL(s)
	}
	return insideText.ReplaceAllStringFunc(s, func(u string) string {
		if before, ok := strings.CutSuffix(u, ":"); ok { // of an error, as in "open redis://h?db=1: refused"
			return URL(before) + ":"
		}
		return URL(u)
	})
}

// Credentials returns the texts in the URLs of s that grant access by
// themselves, as written and unescaped: passwords, a NATS token, and the query
// values that have the name of a credential. It returns nil if s is not a URL.
func Credentials(s string) (all []string) {
	if !wholeURL.MatchString(s) {
		return nil
	}
	if first, others, ok := cutList(s); ok {
		return append(Credentials(first), Credentials(others)...)
	}
	_, rest, _ := strings.Cut(s, "://")
	for _, info := range userInfos(rest) {
		user, password, ok := strings.Cut(info, ":")
		if !ok && serverList.MatchString(s) { // NATS takes a user without a password for a token
			password = user
		}
		all = appendBoth(all, password)
	}
	for _, p := range parameter.FindAllStringSubmatch(rest, -1) {
		if credential.MatchString(p[2]) {
			all = appendBoth(all, strings.TrimPrefix(p[3], "="))
		}
	}
	return all
}

// userInfos returns the candidates for the user info of a URL without its scheme. An
// "@" after the first "/", "?" or "#" may end a password in which these are not
// escaped, or may belong to the path or the query.
func userInfos(rest string) (all []string) {
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}
	for _, part := range []string{authority, rest} {
		if at := strings.LastIndexByte(part, '@'); at >= 0 && !slices.Contains(all, part[:at]) {
			all = append(all, part[:at])
		}
	}
	return all
}

// appendBoth appends a credential as written, and its unescaped forms if they differ.
func appendBoth(all []string, text string) []string {
	if text == "" {
		return all
	}
	all = append(all, text)
	if plain, err := url.QueryUnescape(text); err == nil && plain != text {
		all = append(all, plain)
	}
	if plain, err := url.PathUnescape(text); err == nil && plain != text && plain != all[len(all)-1] {
		all = append(all, plain)
	}
	return all
}

// Quote returns a text in quotes, with its URLs masked. It shortens
// a text that is too long to read.
func Quote(s string) string {
	const most = 80
	s = Text(s)
	if runes := []rune(s); len(runes) > most {
		return strconv.Quote(string(runes[:most]) + "…")
	}
	return strconv.Quote(s)
}
