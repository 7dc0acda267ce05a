package aitest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/skep-dev/skep/agent"
)

// vendor is how the providers of a protocol are spoken to.
type vendor struct {
	name     string
	protocol agent.Protocol
	base     string // of the URL, as the vendor's SDK takes it
	path     string // below it, of a whole answer
	stream   string // likewise, of a stream
	model    string
	whole    func(t turn, model string) string
	frames   func(t turn, body map[string]any, model string) []string
	check    func(body map[string]any, before []turn) error // what a request must have in it that comes after these turns
	image    func(body map[string]any) (typ, data string)
	faults   map[string]fault
	broken   string // the frame that is an error
}

// fault is an answer that is an error.
type fault struct {
	status int
	header string
	body   string
}

var vendors = []*vendor{chatVendor, responseVendor, messageVendor, geminiVendor}

func vendorOf(name string) *vendor {
	for _, v := range vendors {
		if v.name == name {
			return v
		}
	}
	panic(name)
}

// turn is what a model says.
type turn struct {
	thought, sign, text string
	calls               []toolCall
	length              bool // it was cut short by the limit of tokens
}

type toolCall struct{ id, name, args string }

// upstream is all the providers. The first part of a path says for which cell it is one.
type upstream struct {
	url   string
	mu    sync.Mutex
	cells map[string]*played
}

// played is how far a cell has come.
type played struct {
	cell  cell
	calls int
	gone  int // calls whose client went away while they stalled
	wrong []string
	seen  chan struct{} // closed when the client says that something has come
	saw   func()
}

// hash tells cells apart: ids are never those of another.
func (c cell) hash() string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.name()))
	return fmt.Sprintf("%08x", h.Sum32())
}

// sign is how the base64 of each signature begins.
func (c cell) sign() string { return base64.StdEncoding.EncodeToString([]byte(c.hash() + "s")) }

// own puts the ids of the cell into what a provider says for the nth time, and common takes them out of a request.
func (c cell) own(s string, n int) string {
	return strings.NewReplacer("tc_", "tc_"+c.hash()+"_", "c2lnbmF0dXJl", c.sign(), `"r1"`, fmt.Sprintf(`"r%s%d"`, c.hash(), n),
		`chatcmpl-1`, fmt.Sprintf("chatcmpl-%s%d", c.hash(), n), `"msg_1"`, fmt.Sprintf(`"msg_%s%d"`, c.hash(), n), `"resp_1"`, fmt.Sprintf(`"resp_%s%d"`, c.hash(), n)).Replace(s)
}

func (c cell) common(s string) string {
	return strings.NewReplacer("tc_"+c.hash()+"_", "tc_", c.sign(), "c2lnbmF0dXJl").Replace(s)
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, path, _ := strings.Cut(r.URL.Path[1:], "/")
	body, _ := io.ReadAll(r.Body)
	u.mu.Lock()
	if name == "seen" {
		u.cells[path].saw()
		u.mu.Unlock()
		return
	}
	p := u.cells[name]
	if p == nil {
		u.mu.Unlock()
		http.NotFound(w, r)
		return
	}
	n := p.calls
	p.calls++
	u.mu.Unlock()
	c := p.cell
	v := vendorOf(c.upstream)
	rp := c.kind.reply[min(n, len(c.kind.reply)-1)]
	var in map[string]any
	err := json.Unmarshal([]byte(c.common(string(body))), &in)
	if err == nil {
		err = v.admit(r, "/"+path, body, in, c)
	}
	if err == nil && len(c.kind.reply) > n && (c.kind.only == "" || v != responseVendor) { // which keeps what is named
		var before []turn
		for _, b := range c.kind.reply[:n] {
			if b.fault == "" {
				before = append(before, b.turn)
			}
		}
		err = v.check(in, before)
	}
	if typ, data := v.image(in); err == nil && c.kind.name == "image" && (typ != "image/png" || data != pixel) {
		err = fmt.Errorf("the picture is %q %q", typ, data)
	}
	if err != nil {
		u.mu.Lock()
		p.wrong = append(p.wrong, fmt.Sprintf("%v; the request was %s", err, body))
		u.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"type":"error","error":{"message":%q,"type":"invalid_request_error","code":400,"status":"INVALID_ARGUMENT"}}`, "the provider does not like: "+err.Error())
		return
	}
	if f, ok := v.faults[rp.fault]; ok {
		w.Header().Set("Content-Type", "application/json")
		if name, value, ok := strings.Cut(f.header, ": "); ok {
			w.Header().Set(name, value)
		}
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, f.body)
		return
	}
	if !c.kind.stream {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, c.own(v.whole(rp.turn, v.model), n))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	if rp.fault == "early" {
		_, _ = io.WriteString(w, v.broken)
		return
	}
	for _, f := range v.frames(rp.turn, in, v.model) {
		_, _ = io.WriteString(w, c.own(f, n))
		_ = flush.Flush()
		if rp.fault == "" || !strings.Contains(f, `"Hello`) {
			continue
		}
		if rp.fault != "stall" { // until the client has seen what came
			select {
			case <-p.seen:
			case <-r.Context().Done():
			}
		}
		switch rp.fault {
		case "error":
			_, _ = io.WriteString(w, v.broken)
		case "cut":
			panic(http.ErrAbortHandler)
		case "stall":
			<-r.Context().Done()
			u.mu.Lock()
			p.gone++
			u.mu.Unlock()
		case "eof":
		}
		return
	}
}

// admit checks what each request must be like.
func (v *vendor) admit(r *http.Request, path string, body []byte, in map[string]any, c cell) error {
	want := v.base + v.path
	if c.kind.stream {
		want = v.base + v.stream
	}
	if path != want {
		return fmt.Errorf("the path is %s, not %s", path, want)
	}
	if v != geminiVendor && in["model"] != v.model {
		return fmt.Errorf("the model is %v", in["model"])
	}
	if v == geminiVendor && c.kind.stream && r.URL.Query().Get("alt") != "sse" {
		return fmt.Errorf("the query is %s", r.URL.RawQuery)
	}
	keys := 0
	for name, vs := range r.Header {
		for _, value := range vs {
			if strings.Contains(value, virtualKey) {
				return fmt.Errorf("the virtual key is in %s", name)
			}
			if strings.Contains(value, vendorKey) {
				keys++
			}
		}
	}
	if keys != 1 || strings.Contains(string(body)+r.URL.String(), virtualKey) {
		return fmt.Errorf("the key is in %d header fields", keys)
	}
	for _, want := range []string{prompt, "Be brief"} {
		if !strings.Contains(string(body), want) {
			return fmt.Errorf("%q is not in it", want)
		}
	}
	if c.kind.tools {
		for _, want := range []string{"get_weather", "get_time", "Where", `"city"`, `"days"`, `"zone"`} {
			if !strings.Contains(string(body), want) {
				return fmt.Errorf("%s is not in it", want)
			}
		}
	}
	return nil
}

// at walks through decoded JSON: at(v, "a", 0, "b").
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

func list(v any, path ...any) []any {
	l, _ := at(v, path...).([]any)
	return l
}

func text(v any, path ...any) string {
	s, _ := at(v, path...).(string)
	return s
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func orNull(s string) string {
	if s == "" {
		return "null"
	}
	return quoted(s)
}

// pieces cuts text in two, at the border of a letter.
func pieces(s string) []string {
	r := []rune(s)
	if len(r) < 2 {
		return []string{s}
	}
	return []string{string(r[:len(r)/2]), string(r[len(r)/2:])}
}

// sameArgs compares arguments as JSON.
func sameArgs(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	p, _ := json.Marshal(x)
	q, _ := json.Marshal(y)
	return string(p) == string(q)
}

func jsonOf(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// result is what the clients answer a call with.
func result(name string) string { return "result of " + name }
