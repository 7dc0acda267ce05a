package door

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
)

// plain answers a request that names a whole URL (RFC 9112, section 3.2.2). What the header Host says is not looked at: net/http has put the URL's in its place.
func (d *Door) plain(w http.ResponseWriter, r *http.Request) {
	if !take(d.proxied) {
		d.refuse(w, r, r.Method+" "+r.RequestURI, full("connections by the proxy", MaxConnections))
		return
	}
	defer give(d.proxied)
	d.forward(w, r, r.RequestURI)
}

// forward makes a request of the box, and brings the response back as it comes.
func (d *Door) forward(w http.ResponseWriter, r *http.Request, rawURL string) {
	what := r.Method + " " + rawURL
	header, err := headersOf(r)
	if err == nil && d.o.Way == nil {
		err = errNoWay()
	}
	if err != nil {
		d.refuse(w, r, what, err)
		return
	}
	control := http.NewResponseController(w)
	req := &egress.Request{Method: r.Method, URL: rawURL, Header: header, Redirect: egress.Manual}
	if r.ContentLength != 0 {
		_ = control.EnableFullDuplex() // a server may answer before it has read all
		body := &upload{from: r.Body, control: control}
		defer body.end()
		req.Body, req.Length = body, r.ContentLength
	}
	client := d.o.Way.Client()
	res, err := client.Do(r.Context(), req)
	if err != nil {
		if aborted(r.Context(), err) {
			panic(http.ErrAbortHandler)
		}
		d.refuse(w, r, what, err)
		return
	}
	defer res.Body.Close()
	h := w.Header()
	h["Content-Type"] = nil // is not to be guessed
	for _, f := range res.Header {
		h.Add(f[0], f[1])
	}
	w.WriteHeader(res.Status)
	if err := d.copy(r.Context(), w, control, client, res.Body); err != nil {
		d.o.Log.DebugContext(r.Context(), "a response for a sandbox", "sandbox", d.o.Box, "error", err)
		if agent.KindOf(err) == agent.Denied {
			d.tell(r.Context(), what, err)
		}
		panic(http.ErrAbortHandler)
	}
	_ = control.SetWriteDeadline(time.Time{})
}

// stillEvery is how often a response that comes is judged again.
const stillEvery = time.Second

// copy passes a body on, each piece as it comes.
func (d *Door) copy(ctx context.Context, w http.ResponseWriter, control *http.ResponseController, client Client, body io.Reader) error {
	piece := make([]byte, 32<<10)
	var judged time.Time
	for {
		n, err := body.Read(piece)
		now := time.Now()
		if now.Sub(judged) >= stillEvery {
			if err := client.Still(ctx); err != nil {
				return err
			}
			judged = now
		}
		if n > 0 {
			_ = control.SetWriteDeadline(now.Add(idle))
			if _, err := w.Write(piece[:n]); err != nil {
				return err
			}
			if err := control.Flush(); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// ofConnection are the headers that are between the client and this proxy (RFC 9110, section 7.6.1), with those that only proxies read.
var ofConnection = []string{
	"Connection", "Expect", "Http2-Settings", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// headersOf are those that go on. A request to become something else than HTTP is refused; one to become HTTP/2 may be ignored, and is.
func headersOf(r *http.Request) ([][2]string, error) {
	for _, up := range r.Header.Values("Upgrade") {
		if !strings.EqualFold(strings.TrimSpace(up), "h2c") {
			return nil, &agent.Error{
				Kind: agent.Denied, Msg: "the request asks for another protocol than HTTP, and WebSockets and the like do not go through", Hint: "use the host's API by plain requests",
			}
		}
	}
	own := slices.Clone(ofConnection)
	for _, line := range r.Header.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			own = append(own, textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)))
		}
	}
	var out [][2]string
	for name, values := range r.Header {
		if slices.Contains(own, name) {
			continue
		}
		for _, v := range values {
			out = append(out, [2]string{name, v})
		}
	}
	return out, nil
}

// upload is the body of a request, of which each part has to come in time. Egress may read it still when the request has ended: then it is over.
type upload struct {
	from    io.Reader
	control *http.ResponseController

	mu   sync.Mutex
	over bool
}

func (u *upload) Read(p []byte) (int, error) {
	if !u.wait(time.Now().Add(idle)) {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := u.from.Read(p)
	if err != nil {
		u.wait(time.Time{})
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = agent.Wrap(agent.Cancelled, err, "the request's body did not come to its end")
	}
	return n, err
}

// wait sets until when the next part has to come. It reports whether the request goes on.
func (u *upload) wait(until time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.over {
		_ = u.control.SetReadDeadline(until)
	}
	return !u.over
}

func (u *upload) end() {
	u.wait(time.Time{})
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = true
}
