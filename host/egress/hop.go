package egress

import (
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
)

// maxPath is the most bytes of a path that are told of: a guest makes it, and logs keep it.
const maxPath = 500

// hop is what is told of one request when it has ended.
type hop struct {
	mu             sync.Mutex
	to             agent.Request
	began          time.Time
	status         int
	sent, received int64
	open           bool
}

func (h *hop) begin(to agent.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.to, h.began, h.status, h.open = to, time.Now(), 0, true
	h.sent, h.received = 0, 0
}

func (h *hop) answered(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

func (h *hop) count(sent, received int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent += int64(sent)
	h.received += int64(received)
}

// unsent begins the count of a body that is sent once more.
func (h *hop) unsent() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent = 0
}

func (h *hop) end(r *Request, err error) {
	h.mu.Lock()
	open := h.open
	h.open = false
	u := agent.HTTPUse{
		Agent: r.Owner.Agent, Method: h.to.Method, Path: short(h.to.Path), Status: h.status, Sent: h.sent, Received: h.received,
	}
	to, began := h.to, h.began
	h.mu.Unlock()
	if !open || r.Observe == nil {
		return
	}
	u.Host, u.Duration = hostport(to), time.Since(began)
	if err != nil {
		u.Error = agent.AsError(err).Msg
	}
	r.Observe(u)
}

func short(path string) string { // it is ASCII
	if len(path) > maxPath {
		return path[:maxPath] + "..."
	}
	return path
}

// hostport is what the header Host says: the port only when it is not the scheme's own.
func hostport(r agent.Request) string {
	host := r.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if r.Scheme == "https" && r.Port == "443" || r.Scheme == "http" && r.Port == "80" {
		return host
	}
	return host + ":" + r.Port
}
