package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

func now() time.Time { return time.Now().UTC() }

// Servers lists an app's servers, by name: those that there are records of, and the built-in ones.
func (c *Catalogue) Servers(ctx context.Context, app agent.App) ([]agent.ToolServer, error) {
	var out []agent.ToolServer
	page := agent.Page{Limit: agent.MaxPage}
	for {
		next, err := c.store.Docs(ctx, store.ToolServers, app, "", page, func(name string, rev int64, data []byte) error {
			s, err := decodeRecord(app, name, rev, data)
			out = append(out, s)
			return err
		})
		if err != nil {
			return nil, err
		}
		if page.After = next; next == "" {
			break
		}
	}
	for _, name := range c.opts.BuiltIns {
		if !slices.ContainsFunc(out, func(s agent.ToolServer) bool { return s.Name == name }) {
			out = append(out, builtIn(app, name))
		}
	}
	slices.SortFunc(out, func(a, b agent.ToolServer) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func builtIn(app agent.App, name string) agent.ToolServer {
	return agent.ToolServer{App: app, Name: name, Kind: agent.BuiltIn, Trusted: true}
}

func decodeRecord(app agent.App, name string, rev int64, data []byte) (agent.ToolServer, error) {
	var s agent.ToolServer
	if err := json.Unmarshal(data, &s); err != nil {
		return s, agent.Wrap(agent.Internal, err, fmt.Sprintf("the record of the server of tools %q cannot be read", name))
	}
	s.App, s.Name, s.Rev = app, name, rev
	return s, nil
}

// Server returns the record of a server, a built-in one's too.
func (c *Catalogue) Server(ctx context.Context, app agent.App, name string) (agent.ToolServer, error) {
	s, err := c.stored(ctx, app, name)
	if agent.KindOf(err) == agent.NotFound && slices.Contains(c.opts.BuiltIns, name) {
		return builtIn(app, name), nil
	}
	return s, err
}

// stored returns a record that there is.
func (c *Catalogue) stored(ctx context.Context, app agent.App, name string) (agent.ToolServer, error) {
	if name == "" || len(name) > 63 {
		return agent.ToolServer{}, agent.Errorf(agent.NotFound, "there is no server of tools %.80q", name)
	}
	var raw json.RawMessage
	rev, err := c.store.Doc(ctx, store.ToolServers, app, name, &raw)
	if err != nil {
		if agent.KindOf(err) == agent.NotFound {
			return agent.ToolServer{}, &agent.Error{
				Kind: agent.NotFound, Msg: fmt.Sprintf("there is no server of tools %q", name), Hint: "skep tools status lists them; skep tools add " + name + " -- COMMAND adds one",
			}
		}
		return agent.ToolServer{}, err
	}
	return decodeRecord(app, name, rev, raw)
}

// Add stores the record of a new server. It starts nothing; Refresh does. A name that is taken is an Exists error.
func (c *Catalogue) Add(ctx context.Context, s agent.ToolServer) (agent.ToolServer, error) {
	if err := c.check(s); err != nil {
		return agent.ToolServer{}, err
	}
	s.Created = now()
	s.Updated, s.Rev, s.Pins = s.Created, 0, nil
	rev, err := c.store.PutDoc(ctx, store.ToolServers, s.App, s.Name, 0, s)
	if err != nil {
		if agent.KindOf(err) == agent.Exists {
			return agent.ToolServer{}, &agent.Error{Kind: agent.Exists, Msg: fmt.Sprintf("there is a server of tools %q already", s.Name), Hint: "give it another name, or remove that one: skep tools remove " + s.Name}
		}
		return agent.ToolServer{}, err
	}
	s.Rev = rev
	c.changes.tell(s.App)
	return s, nil
}

// Change changes the record of a server. When it is reached another way afterwards, its source is closed; when it comes to be trusted, its tools are
// pinned as they are.
func (c *Catalogue) Change(ctx context.Context, app agent.App, name string, edit func(*agent.ToolServer) error) (agent.ToolServer, error) {
	return c.change(ctx, app, name, func(s *agent.ToolServer) error {
		was := *s
		if err := edit(s); err != nil {
			return err
		}
		s.App, s.Name, s.Kind, s.Rev, s.Created = was.App, was.Name, was.Kind, was.Rev, was.Created
		if s.Trusted && !was.Trusted || reachOf(*s) != reachOf(was) {
			s.Pins = nil // by the next list
		}
		return c.check(*s)
	})
}

// Remove deletes the record of a server and ends its source.
func (c *Catalogue) Remove(ctx context.Context, app agent.App, name string) error {
	if _, err := c.stored(ctx, app, name); err != nil {
		return err
	}
	err := c.store.DeleteDoc(ctx, store.ToolServers, app, name, store.AnyRev)
	c.drop(app, name)
	c.changes.tell(app)
	return err
}

// Status is how a server stands. It starts nothing.
func (c *Catalogue) Status(ctx context.Context, app agent.App, name string) (agent.ToolStatus, error) {
	s, err := c.Server(ctx, app, name)
	if err != nil {
		return agent.ToolStatus{}, err
	}
	return c.statusOf(s), nil
}

func (c *Catalogue) statusOf(s agent.ToolServer) agent.ToolStatus {
	e, err := c.entry(s)
	if err != nil {
		return agent.ToolStatus{Server: s.Name, Kind: s.Kind, State: agent.ServerFailed, Error: agent.AsError(err).Msg}
	}
	return e.status()
}

// Refresh asks a server anew for what it has: one that is started anew for it, unless calls of it are under way. What fails is in the status.
func (c *Catalogue) Refresh(ctx context.Context, app agent.App, name string) (agent.ToolStatus, error) {
	s, e, err := c.at(ctx, app, name)
	if err != nil {
		return agent.ToolStatus{}, err
	}
	e.refresh()
	_, _, err = e.listed(ctx, s)
	if err != nil && ctx.Err() != nil {
		return agent.ToolStatus{}, err
	}
	return c.statusOf(s), nil
}

// Classified is what an operator says of a tool.
type Classified struct {
	Tool   string       `json:"tool"`
	Effect agent.Effect `json:"effect"` // unclassified takes back what was said before
}

// Classify keeps what an operator says of tools, and pins them as they are. All of them are there, or nothing is kept.
func (c *Catalogue) Classify(ctx context.Context, app agent.App, list []Classified) ([]agent.Tool, error) {
	return c.look(ctx, app, len(list), func(i int) string { return list[i].Tool }, func(s *agent.ToolServer, method string, i int) {
		if list[i].Effect == agent.Unclassified {
			delete(s.Effects, method)
			return
		}
		if s.Effects == nil {
			s.Effects = map[string]agent.Effect{}
		}
		s.Effects[method] = list[i].Effect
	})
}

// Pin accepts tools as they are now. A name may be SERVER.* for all of a server.
func (c *Catalogue) Pin(ctx context.Context, app agent.App, names []string) ([]agent.Tool, error) {
	var whole []string
	for _, n := range names {
		server, method, _ := agent.SplitTool(n)
		if method != "*" {
			whole = append(whole, n)
			continue
		}
		s, e, err := c.at(ctx, app, server)
		if err != nil {
			return nil, err
		}
		list, _, err := e.listed(ctx, s)
		if err != nil {
			return nil, err
		}
		for _, t := range list {
			whole = append(whole, t.Name)
		}
	}
	return c.look(ctx, app, len(whole), func(i int) string { return whole[i] }, func(*agent.ToolServer, string, int) {})
}

// look changes the records of the servers of n tools, which a person has looked at and which are pinned by that. It returns them as they are then.
func (c *Catalogue) look(ctx context.Context, app agent.App, n int, name func(int) string, edit func(s *agent.ToolServer, method string, i int)) ([]agent.Tool, error) {
	found := make([]agent.Tool, n)
	servers := map[string][]int{}
	for i := range n {
		t, err := c.Resolve(ctx, app, name(i))
		if err != nil {
			return nil, err
		}
		found[i] = t
		servers[t.Server] = append(servers[t.Server], i)
	}
	for server, at := range servers {
		if slices.Contains(c.opts.BuiltIns, server) {
			s := builtIn(app, server)
			s.Created = now()
			if _, err := c.store.PutDoc(ctx, store.ToolServers, app, server, 0, s); err != nil && agent.KindOf(err) != agent.Exists {
				return nil, err
			}
		}
		s, err := c.change(ctx, app, server, func(s *agent.ToolServer) error {
			e, err := c.entry(*s)
			if err != nil {
				return err
			}
			methods := make([]string, 0, len(at))
			for _, i := range at {
				edit(s, found[i].Method, i)
				methods = append(methods, found[i].Method)
			}
			if s.Pins[pinAll] != "" || len(e.digests()) > maxPins {
				methods = nil
			}
			e.pin(s, methods...)
			return nil
		})
		if err != nil {
			return nil, err
		}
		for _, i := range at {
			if found[i], err = c.find(ctx, app, s.Name, found[i].Method); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// Detail is a tool, and what a person may want to know who classifies it.
type Detail struct {
	agent.Tool
	Path    string       // how code writes it: tools.SERVER.METHOD
	Hints   *Hints       // what its server says of its effect
	Suggest agent.Effect // what it may be; believed by nobody
	Why     string       // it may be that
}

// Detail resolves a tool and says more of it.
func (c *Catalogue) Detail(ctx context.Context, app agent.App, name string) (Detail, error) {
	t, err := c.Resolve(ctx, app, name)
	if err != nil {
		return Detail{}, err
	}
	d := Detail{Tool: t}
	if x, err := c.indexOf(ctx, app); err == nil {
		d.Path = x.names.Path(t.Name)
	}
	_, e, err := c.at(ctx, app, t.Server)
	if err != nil {
		return Detail{}, err
	}
	d.Hints = e.hints(t.Method)
	d.Suggest, d.Why = suggest(t, d.Hints)
	return d, nil
}

func (e *entry) hints(method string) *Hints {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range e.offers {
		if o.Method == method {
			return o.Hints
		}
	}
	return nil
}
