package mcp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/plugins"
	"github.com/skep-dev/skep/runtime"
)

type doorKey struct {
	app agent.App
	Door
}

func (k doorKey) String() string {
	return string(k.app) + "\x00" + string('0'+rune(k.Kind)) + "\x00" + k.Agent
}

// door is one server of the SDK: what is behind one door of one app, for all of its clients. It is brought up to date when a request comes,
// and when something changes while clients listen.
type door struct {
	h      *Handler
	key    doorKey
	server *sdk.Server

	mu      sync.Mutex
	content content
	checked time.Time
	used    time.Time
}

// content is what a door lists, by name or URI.
type content struct {
	agent     agent.Agent
	own       *plugins.MCP // what the agent serves itself; nil for other doors
	tools     map[string]listed[*sdk.Tool, sdk.ToolHandler]
	prompts   map[string]listed[*sdk.Prompt, sdk.PromptHandler]
	resources map[string]listed[*sdk.Resource, sdk.ResourceHandler]
	templates map[string]listed[*sdk.ResourceTemplate, sdk.ResourceHandler]
}

// listed is an entry with what answers for it. print is of all that clients are told.
type listed[T, H any] struct {
	entry  T
	handle H
	print  [32]byte
}

func list[T, H any](entry T, handle H) listed[T, H] {
	return listed[T, H]{entry: entry, handle: handle, print: sha256.Sum256(encode(entry))}
}

const (
	fresh    = time.Second      // how long what is listed is not looked at again
	lookTime = time.Minute      // how often it is looked whether a door is used still
	doorTime = 10 * time.Minute // how long a door is kept that nobody uses
)

// door returns what a URL leads to, as it is now.
func (h *Handler) door(ctx context.Context, app agent.App, at Door) (*door, error) {
	if at.Agent == "" {
		at.Agent = runtime.CodeAgent
	}
	key := doorKey{app, at}
	h.mu.Lock()
	d, found := h.doors[key]
	h.mu.Unlock()
	if found {
		return d, d.refresh(ctx, false)
	}
	d = &door{h: h, key: key, used: time.Now()}
	changed := d.changed()
	next, err := d.look(ctx)
	if err != nil {
		return nil, err
	}
	d.server = d.newServer(next)
	d.show(next)
	h.mu.Lock()
	defer h.mu.Unlock()
	if other, found := h.doors[key]; found {
		return other, nil
	}
	if h.stopping.Load() {
		return nil, agent.Errorf(agent.Unavailable, "the server is stopping")
	}
	if len(h.doors) >= h.o.Doors && !h.dropIdle() {
		return nil, agent.Errorf(agent.Unavailable, "%d MCP servers are in use already", len(h.doors))
	}
	h.doors[key] = d
	h.work.Go(func() { d.watch(changed) })
	return d, nil
}

// dropIdle forgets the door that nobody has used for longest. The caller holds h.mu.
func (h *Handler) dropIdle() bool {
	var oldest *door
	for _, d := range h.doors {
		if d.listeners() == 0 && (oldest == nil || d.usedAt().Before(oldest.usedAt())) {
			oldest = d
		}
	}
	if oldest == nil {
		return false
	}
	delete(h.doors, oldest.key)
	return true
}

func (d *door) usedAt() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used
}

func (d *door) listeners() (n int) {
	for range d.server.Sessions() {
		n++
	}
	return n
}

// changed is closed when there may be others to list; nil when nobody says so.
func (d *door) changed() <-chan struct{} {
	if d.h.o.Tools == nil {
		return nil
	}
	return d.h.o.Tools.Changed(d.key.app)
}

// watch tells clients of changes while there are any, and ends with the door. changed is of before the door was looked at.
func (d *door) watch(changed <-chan struct{}) {
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	follow, stop := context.WithCancel(d.h.closing)
	defer stop()
	if d.key.Kind == Serve {
		d.h.work.Go(func() { d.followLog(follow) })
	}
	for {
		select {
		case <-d.h.closing.Done():
			return
		case <-changed:
			changed = d.changed()
			d.tell()
			select { // many changes in a row are told together
			case <-d.h.closing.Done():
				return
			case <-time.After(fresh):
			}
			continue
		case <-tick.C:
		}
		if d.listeners() > 0 {
			if changed == nil {
				d.tell()
			}
			continue
		}
		d.h.mu.Lock()
		gone := d.h.doors[d.key] != d
		if !gone && time.Since(d.usedAt()) > doorTime {
			delete(d.h.doors, d.key)
			gone = true
		}
		d.h.mu.Unlock()
		if gone {
			return
		}
	}
}

// tell has what is listed looked at again: for those who listen, or when the next request comes.
func (d *door) tell() {
	d.mu.Lock()
	d.checked = time.Time{}
	d.mu.Unlock()
	if d.listeners() == 0 {
		return
	}
	if err := d.refresh(d.h.closing, true); err != nil {
		d.h.o.Log.Debug("mcp: what is listed cannot be read", "agent", d.key.Agent, "err", err)
	}
}

// now returns what is listed.
func (d *door) now() content {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.content
}

// refresh brings the server up to date, which tells its clients what has changed.
func (d *door) refresh(ctx context.Context, now bool) error {
	d.mu.Lock()
	stale := now || time.Since(d.checked) > fresh
	if !now {
		d.used = time.Now()
	}
	d.mu.Unlock()
	if !stale {
		return nil
	}
	next, err := d.look(ctx)
	if err != nil {
		return err
	}
	d.show(next)
	return nil
}

// look reads what there is.
func (d *door) look(ctx context.Context) (c content, err error) {
	c = content{
		tools: map[string]listed[*sdk.Tool, sdk.ToolHandler]{}, prompts: map[string]listed[*sdk.Prompt, sdk.PromptHandler]{},
		resources: map[string]listed[*sdk.Resource, sdk.ResourceHandler]{}, templates: map[string]listed[*sdk.ResourceTemplate, sdk.ResourceHandler]{},
	}
	c.agent, err = d.h.st.Agent(ctx, d.key.app, d.key.Agent)
	if agent.KindOf(err) == agent.NotFound && d.key.Agent == runtime.CodeAgent && d.key.Kind != Serve { // it is made by its first run
		c.agent = agent.Agent{App: d.key.app, Name: runtime.CodeAgent, Grants: agent.Grants{Tools: []agent.NamedGrant{{Name: "*"}}}}
		err = nil
	}
	if err != nil {
		return c, err
	}
	m, err := d.manifest(ctx, c.agent)
	if err != nil {
		return c, err
	}
	if d.key.Kind == Serve {
		if m == nil {
			return c, &agent.Error{
				Kind: agent.NotFound, Msg: "agent " + c.agent.Name + " serves nothing by MCP: the skep.json of its code has no field mcp",
				Hint: "the tools that it is granted are at /mcp/" + c.agent.Name,
			}
		}
		c.own = m
		d.serve(c, m)
		return c, nil
	}
	d.ownFiles(c)
	if d.key.Kind != Tools {
		d.codeTools(c)
	}
	if m != nil && d.key.Kind != Code {
		d.servePrompts(c, m)
	}
	if d.key.Kind != Code && d.h.o.Tools != nil {
		err = d.catalogue(ctx, c)
	}
	return c, err
}

// manifest returns the mcp section of an agent's code; nil when it has none.
func (d *door) manifest(ctx context.Context, a agent.Agent) (*plugins.MCP, error) {
	if a.Plugin == "" {
		return nil, nil
	}
	p, err := d.h.st.Plugin(ctx, a.App, a.Plugin)
	if err != nil {
		return nil, err
	}
	m, err := d.h.rt.Manifest(ctx, p)
	return m.MCP, err
}

// show puts what is listed into the server.
func (d *door) show(next content) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.checked = time.Now()
	swap(d.content.tools, next.tools, d.server.RemoveTools, d.server.AddTool)
	swap(d.content.prompts, next.prompts, d.server.RemovePrompts, d.server.AddPrompt)
	swap(d.content.resources, next.resources, d.server.RemoveResources, d.server.AddResource)
	swap(d.content.templates, next.templates, d.server.RemoveResourceTemplates, d.server.AddResourceTemplate)
	d.content = next
}

// swap adds what is new or different, in its order, and takes away what is no more.
func swap[T, H any](was, is map[string]listed[T, H], remove func(...string), add func(T, H)) {
	var gone []string
	for name := range was {
		if _, still := is[name]; !still {
			gone = append(gone, name)
		}
	}
	if gone != nil {
		remove(gone...)
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		one := is[name]
		if old, found := was[name]; !found || old.print != one.print {
			add(one.entry, one.handle)
		}
	}
}

// newServer makes the server of the SDK.
func (d *door) newServer(c content) *sdk.Server {
	o := &sdk.ServerOptions{
		Logger: quiet(d.h.o.Log.With("part", "mcp")), PageSize: d.h.o.Page, Instructions: d.instructions(),
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{ListChanged: true}},
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" }, // lists are those of one app
	}
	title := "Skep"
	if d.key.Kind == Serve {
		title = cmp.Or(c.own.Title, d.key.Agent)
		o.Instructions = c.own.Instructions
		d.serveOptions(o, c.own)
	} else if len(c.prompts) > 0 || d.key.Kind != Code && d.h.o.Tools != nil { // servers may come to have some
		o.Capabilities.Prompts = &sdk.PromptCapabilities{ListChanged: true}
	}
	return sdk.NewServer(&sdk.Implementation{Name: "skep", Title: title, Version: d.h.o.Version}, o)
}
