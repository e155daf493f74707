package console

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/ops"
	"github.com/megaframework/mega/internal/plain"
)

// maxForm bounds the form of an action, in bytes.
const maxForm = 16 << 10

// releaseForm is the body of a release, as the admin socket takes it.
type releaseForm struct {
	Key    string `json:"key"`
	Reason string `json:"reason"`
	admin.Only
}

// release ends a lease of a lock by force: the one with the fence in the form, or
// all of them without a fence. The ops listener has checked the origin of the form
// and ops.actions. The process requires a reason, which the holder receives, and
// logs the release with the operator.
func (c *Console) release(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Redirect(w, r, Root+"/locks", http.StatusSeeOther)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil || !ops.MayAct(r) {
		c.problem(w, http.StatusBadRequest, "Not released", "The form cannot be read.")
		return
	}
	in := releaseForm{Key: r.PostForm.Get("key"), Reason: r.PostForm.Get("reason")}
	if !utf8.ValidString(in.Key) { // JSON would replace bytes, which makes it another key
		c.problem(w, http.StatusBadRequest, "Not released", "The key is not valid UTF-8.")
		return
	}
	if text := r.PostForm.Get("fence"); text != "" {
		fence, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			c.problem(w, http.StatusBadRequest, "Not released", "The fence is not a number.")
			return
		}
		in.Fence = &fence
	}
	page := url.Values{"key": {in.Key}}
	if worker := r.PostForm.Get("worker"); worker != "" {
		page.Set("worker", worker)
	}
	n, status, err := c.postRelease(r, in, page)
	if err != nil {
		c.problem(w, max(status, http.StatusBadRequest), "Not released", err.Error())
		return
	}
	page.Set("released", strconv.Itoa(n))
	page.Set("proof", c.proof(page))
	http.Redirect(w, r, Root+"/lock?"+page.Encode(), http.StatusSeeOther)
}

// proof returns a MAC of query with the secret of this console. A page shows a notice
// of a release only with it, so that a link on another site cannot show one.
func (c *Console) proof(query url.Values) string {
	h := hmac.New(sha256.New, c.secret[:])
	_, _ = h.Write([]byte(query.Encode())) // it never fails
	return hex.EncodeToString(h.Sum(nil))
}

// postRelease releases the lock in the process of page, and returns the number of
// leases that ended, and the status of the answer.
func (c *Console) postRelease(r *http.Request, in releaseForm, page url.Values) (released, status int, err error) {
	const path = "/ops/lock/release"
	body, err := json.Marshal(in)
	if err != nil {
		return 0, 0, err
	}
	own, cancel := callContext(r.Context())
	defer cancel()
	query := url.Values{}
	if page.Has("worker") {
		query.Set("worker", page.Get("worker"))
	}
	call, err := http.NewRequestWithContext(admin.WithOperator(own, operator(r)), http.MethodPost, address(path, query), bytes.NewReader(body))
	if err != nil {
		return 0, 0, err
	}
	status, text, err := c.call(call)
	if err != nil {
		return 0, http.StatusBadGateway, err
	}
	var out struct {
		Released int `json:"released"`
	}
	err = decode(path, status, text, &out)
	return out.Released, status, err
}

// operator describes the user of a browser: the address, and the name that the
// user gave with the token. The name is not verified.
func operator(r *http.Request) string {
	name, _, _ := r.BasicAuth()
	if name == "" {
		return r.RemoteAddr
	}
	name = plain.Line(name)
	return strings.ToValidUTF8(name[:min(len(name), 64)], "") + " at " + r.RemoteAddr
}
