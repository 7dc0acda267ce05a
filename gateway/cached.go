package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/cache"
	"github.com/skep-dev/skep/gateway/wire"
)

// cacheKey is what makes a request the same as another: the app, the protocol and all that the body says, but for who is named as user; the route with the
// candidates that fit the request, at their revisions; and the guardrails that look at it. keep says that the answer may be kept. It sets cached when the route
// has a cache for such requests.
func (x *exchange) cacheKey() (k cache.Key, keep bool) {
	r := x.plan.route
	if r == nil || r.Cache <= 0 || x.op != wire.Generate && x.op != wire.Embed || x.peek.Signed || x.peek.Tools && !r.CacheTools {
		return k, false
	}
	what, err := x.saysWhat()
	if err != nil {
		return k, false
	}
	var to []string
	for _, c := range x.plan.choices {
		to = append(to, fmt.Sprintf("%q %d %d %q %q %q %q", c.p.Name, c.p.Revision, c.p.Created.UnixNano(), c.model, c.effort, x.guard(true, c).Mark(), x.guard(false, c).Mark()))
	}
	slices.Sort(to) // a route that draws them has them in any order
	where := fmt.Sprintf("%q %d %d %v %q", x.who.App, x.protocol, x.op, x.peek.Stream && x.in != nil, r.Name)
	k = cache.KeyOf([]byte(where), []byte(strings.Join(to, "\n")), what)
	x.cached, keep = "miss", true
	if x.in != nil {
		if strings.Contains(strings.ToLower(strings.Join(x.in.Header["Cache-Control"], ",")), "no-store") {
			return k, false
		}
		if f, ok := x.to.(*httpFront); ok {
			f.tape = &tape{most: cache.MaxAnswer}
		}
	}
	return k, keep
}

// saysWhat is what the request says, in one form for all that say the same.
func (x *exchange) saysWhat() ([]byte, error) {
	if x.in == nil {
		r := *x.asked
		r.User, r.CacheKey, r.Stream, r.Metadata = "", "", false, nil
		return json.Marshal(&r)
	}
	without := []string{"user", "safety_identifier", "prompt_cache_key"}
	if x.protocol == agent.MessageProtocol {
		without = append(without, "metadata") // the user alone is in it
	}
	body, err := cache.Normal(x.in.Body, without...)
	if err != nil {
		return nil, err
	}
	q, err := url.ParseQuery(x.in.Query)
	if err != nil {
		return nil, err
	}
	h := x.in.Header
	return fmt.Appendf(body, "\n%q %q %q %q", x.in.Path, q.Get("alt"), h["Anthropic-Version"], h["Anthropic-Beta"]), nil
}

// takesKept reports whether the client takes an answer that was given before.
func (x *exchange) takesKept() bool {
	if x.in == nil {
		return true
	}
	control := strings.ToLower(strings.Join(x.in.Header["Cache-Control"], ","))
	return !strings.Contains(control, "no-cache") && !strings.Contains(control, "no-store") && !strings.Contains(control, "max-age=0")
}

// fromCache answers with what is kept, if there is something and the client does not mind.
func (x *exchange) fromCache(k cache.Key) (done bool, err error) {
	if !x.takesKept() {
		return false, nil
	}
	now := x.g.o.Now()
	a := x.g.cache.Get(k, now)
	if a == nil {
		return false, nil
	}
	x.cached = "hit"
	c := &choice{p: &provider{Provider: agent.Provider{Name: a.Provider}}, model: a.Model, speaks: x.plan.choices[0].speaks}
	if err := x.uncalled(c, func(e *agent.UsageEvent) { e.Outcome, e.Model.Source = agent.Succeeded, agent.FromCache }); err != nil {
		return true, err
	}
	f, ok := x.to.(*httpFront)
	if !ok {
		return true, x.to.whole(nil, nil, a.Whole, nil)
	}
	h := x.header(nil, false, a.ContentType)
	h[HeaderModel], h[HeaderCall] = []string{a.Provider + "/" + a.Model}, []string{x.call}
	h["Age"] = []string{strconv.FormatInt(int64(now.Sub(a.At).Seconds()), 10)}
	if a.Stream {
		h["Cache-Control"] = []string{"no-cache"}
	} else {
		h["Content-Length"] = []string{strconv.Itoa(len(a.Body))}
	}
	if f.start(a.Status, h) != nil {
		return true, errGone
	}
	return true, f.say(a.Body)
}

// toCache keeps the answer that was told, if it is whole and nothing is wrong with it.
func (x *exchange) toCache(k cache.Key) {
	l := x.answered
	if l == nil || !l.was.whole {
		return
	}
	switch l.was.stop {
	case wire.StopEnd, wire.StopSequence, wire.StopTool:
	case wire.StopUnknown, wire.StopLength, wire.StopFilter, wire.StopPause, wire.StopBroken:
		if x.op != wire.Embed {
			return
		}
	}
	now := x.g.o.Now()
	a := &cache.Answer{Stream: x.peek.Stream, Provider: l.c.p.Name, Model: l.c.model, At: now}
	size := 0
	switch f := x.to.(type) {
	case *httpFront:
		if f.tape == nil || f.tape.over || f.tape.status != http.StatusOK {
			return
		}
		a.Status, a.ContentType, a.Body = f.tape.status, f.tape.typ, slices.Clip(f.tape.body)
		size = len(a.Body)
	case *askFront:
		own := *f.answer()
		own.Parts = slices.Clone(own.Parts)
		a.Whole = &own
		b, err := json.Marshal(a.Whole)
		if err != nil {
			return
		}
		size = len(b)
	default:
		return
	}
	x.g.cache.Put(k, a, size, now.Add(x.plan.route.Cache))
}
