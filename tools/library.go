package tools

import (
	"context"
	"slices"
	"strconv"

	"github.com/skep-dev/skep/agent"
)

// Tools of Skep's own that stand for what a server has besides tools, so that grants, policy and journal are those of any call. Each is there when its
// server has such things, and has no tool of that name.
const (
	PromptsList   = "prompts.list"
	PromptsGet    = "prompts.get"
	ResourcesList = "resources.list"
	ResourcesRead = "resources.read"
)

// Contents is what a server has besides tools.
type Contents struct {
	Prompts   []agent.Prompt
	Resources []agent.Resource
	Templates []agent.Resource // by which resources are named that no list has
}

// Library is a source that may have such contents.
type Library interface {
	// Contents lists them. A list that cannot be had, or what is wrong in one, is left out, with a note.
	Contents(ctx context.Context) (Contents, []string, error)
}

// contents asks a source for what it has besides tools. What goes wrong is a note: its tools are there all the same.
func contents(ctx context.Context, src Source) (Contents, []string) {
	lib, ok := src.(Library)
	if !ok {
		return Contents{}, nil
	}
	c, notes, err := lib.Contents(ctx)
	if err != nil {
		notes = append(notes, "prompts and resources: "+agent.AsError(err).Msg)
	}
	return c, notes
}

// Contents is what a server of an app has besides tools, as it said when it was last asked.
func (c *Catalogue) Contents(ctx context.Context, app agent.App, server string) (Contents, error) {
	_, e, err := c.at(ctx, app, server)
	if err != nil {
		return Contents{}, err
	}
	if err := e.list(ctx); err != nil {
		return Contents{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.contents
	own := func(method string) bool {
		return slices.ContainsFunc(e.offers, func(o offer) bool { return o.Own && o.Method == method })
	}
	if !own(PromptsGet) { // it has a tool of that name, which does something else
		out.Prompts = nil
	}
	if !own(ResourcesRead) {
		out.Resources, out.Templates = nil, nil
	}
	return out, nil
}

// Part is one page of a list of contents: those that follow the cursor after, "" for the first page, up to limit of them. next is the cursor of the page
// that follows, "" on the last.
func Part[T any](all []T, after string, limit int) (part []T, next string, err error) {
	from := 0
	if after != "" {
		if from, err = strconv.Atoi(after); err != nil || from < 0 {
			return nil, "", agent.Errorf(agent.Invalid, "after is no cursor of this list: it is next of the page before")
		}
	}
	from = min(from, len(all))
	to := min(from+limit, len(all))
	if to < len(all) {
		next = strconv.Itoa(to)
	}
	return append([]T{}, all[from:to]...), next, nil
}
