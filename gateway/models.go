package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// ModelInfo is a model that may be asked for.
type ModelInfo struct {
	ID       string    `json:"id"`       // @ROUTE, PROVIDER/MODEL, or a name that a route stands for
	Provider string    `json:"provider"` // "" for a route
	Created  time.Time `json:"created"`
	Title    string    `json:"title"`
}

// Models lists what a caller may ask for by name: routes, and the models that providers say they have. Patterns are left out.
func (g *Gateway) Models(ctx context.Context, who Caller) ([]ModelInfo, error) {
	b, err := g.book(ctx, who.App)
	if err != nil {
		return nil, err
	}
	return b.list(&who), nil
}

func (b *book) list(who *Caller) []ModelInfo {
	list := []ModelInfo{}
	add := func(m ModelInfo, as string) {
		if who.may(as) == nil && !strings.Contains(m.ID, "*") {
			if m.Title == "" {
				m.Title = m.ID
			}
			list = append(list, m)
		}
	}
	var routes []*agent.ModelRoute
	for _, r := range b.routes {
		routes = append(routes, r)
	}
	slices.SortFunc(routes, func(x, y *agent.ModelRoute) int { return strings.Compare(x.Name, y.Name) })
	for _, r := range routes {
		as := "@" + r.Name
		add(ModelInfo{ID: as, Created: r.Created, Title: r.Description}, as)
		for _, m := range r.Models {
			add(ModelInfo{ID: m, Created: r.Created, Title: r.Description}, as)
		}
	}
	for _, p := range b.ordered {
		if p.Disabled {
			continue
		}
		for _, m := range p.Models {
			id := p.Name + "/" + m
			add(ModelInfo{ID: id, Provider: p.Name, Created: p.Created}, id)
		}
	}
	return list
}

// serveModels answers with the models there are, or with one.
func (x *exchange) serveModels() error {
	form, ok := x.codec.(wire.Lister)
	if !ok {
		return agent.Errorf(agent.NotFound, "%s has no lists of models", x.protocol)
	}
	list := x.book.list(&x.who)
	if x.op == wire.List {
		out := make([]wire.ModelInfo, len(list))
		for i, m := range list {
			out[i] = m.wire()
		}
		return x.json(form.EncodeModels(out), nil)
	}
	_, name, _ := strings.Cut(x.in.Path, "/models/")
	name, err := url.PathUnescape(name)
	if err != nil {
		return agent.Errorf(agent.Invalid, "the name of the model is not escaped as RFC 3986 says")
	}
	i := slices.IndexFunc(list, func(m ModelInfo) bool { return m.ID == name })
	if i >= 0 {
		return x.json(form.EncodeModel(list[i].wire()), nil)
	}
	if _, err := x.resolve(name); err != nil { // what nobody lists may be there all the same
		return err
	}
	return x.json(form.EncodeModel(ModelInfo{ID: name, Title: name}.wire()), nil)
}

func (m ModelInfo) wire() wire.ModelInfo {
	owner := m.Provider
	if owner == "" {
		owner = "skep"
	}
	return wire.ModelInfo{ID: m.ID, Name: m.Title, Owner: owner, Created: m.Created}
}

// json answers an HTTP client with JSON of the gateway's own.
func (x *exchange) json(b []byte, more http.Header) error {
	h := http.Header{"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(len(b))}}
	for name, vs := range more {
		h[name] = vs
	}
	f := x.to.(*httpFront) // an exchange that has an operation of HTTP alone is of HTTP
	if err := f.head(http.StatusOK, h); err != nil {
		return errGone
	}
	return f.write(b)
}

// count answers how many tokens a request has: as the provider counts them, where it does, else by an estimate that says so.
func (x *exchange) count() error {
	form, ok := x.codec.(wire.Counter)
	if !ok {
		return agent.Errorf(agent.NotFound, "%s does not count tokens", x.protocol)
	}
	pl, err := x.resolve(x.peek.Model)
	if err != nil {
		return err
	}
	x.plan = pl
	pl.choices = slices.DeleteFunc(slices.Clone(pl.choices), func(c *choice) bool {
		_, counts := x.g.codecs[c.speaks].(wire.Counter)
		return !counts
	})
	if len(pl.choices) > 0 {
		err := x.tryAll()
		f, failed := errors.AsType[*wire.Fault](err)
		if !failed || f.Class == agent.ClientAbort || f.Class == agent.InvalidRequest && !uncounted(f.Status) {
			return err
		}
	}
	h := http.Header{HeaderEstimate: {"true"}}
	x.mark(h)
	return x.json(form.EncodeCount(estimate(&x.peek)), h)
}

// uncounted reports whether a status is of a provider that does not count.
func uncounted(status int) bool {
	return status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented
}

// translateCount reads how a provider of another protocol counts.
func (x *exchange) translateCount(ctx context.Context, s *shipment, res *http.Response, r io.Reader) *wire.Fault {
	b, fault := x.whole(ctx, s, res, r)
	if fault != nil {
		return fault
	}
	n, err := s.codec.(wire.Counter).DecodeCount(b)
	if err != nil {
		return x.failed(s, ownFault(err), nil, "")
	}
	s.call.end(nil)
	if x.json(x.codec.(wire.Counter).EncodeCount(n), x.header(nil, false, "application/json")) != nil {
		return ownFaultOf(agent.ClientAbort, 499, errGone.Error())
	}
	return nil
}
