package gateway

import (
	"crypto/rand"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// keepsItems reports whether the client may name parts of this answer by their ids in later requests, as the AI SDK does: those of responses may, unless
// they say store: false. What passes is kept by the provider; what is translated is kept here, as origins are: in memory, for an hour.
func (x *exchange) keepsItems() bool {
	return x.in != nil && x.protocol == agent.ResponseProtocol && x.asked != nil && !x.asked.ForgetSafe
}

// nameItem gives a part the id, without the kind of item before it, by which it may be named.
func nameItem(p *wire.Part) { p.Item = rand.Text() }

func itemKey(id string) string {
	if _, bare, ok := strings.Cut(id, "_"); ok {
		id = bare
	}
	return "item " + id
}

// keepItems keeps the parts of an answer.
func (x *exchange) keepItems(from wire.Origin, parts []wire.Part) {
	now := x.g.o.Now()
	put := func(id string, o *origin) {
		x.g.origin.put(now, originKey{x.who.App, x.who.Agent, itemKey(id)}, o)
	}
	for _, p := range parts {
		size := len(p.Text)
		if p.Thought != nil {
			size += len(p.Thought.Opaque)
		}
		if p.Call != nil {
			size += len(p.Call.Args)
		}
		if p.Item == "" || size > maxOpaque {
			continue
		}
		put(p.Item, &origin{Origin: from, before: []wire.Part{p}, size: size})
		if p.Call != nil && p.Thought != nil {
			put(p.Item+wire.SignItem, &origin{Origin: from}) // what sits on a call comes back with it
		}
	}
}

// fillItems puts parts in the place of what names them.
func (x *exchange) fillItems(r *wire.Request) error {
	for i := range r.Messages {
		m := &r.Messages[i]
		if !slices.ContainsFunc(m.Parts, func(p wire.Part) bool { return p.Ref }) {
			continue
		}
		parts := make([]wire.Part, 0, len(m.Parts))
		for _, p := range m.Parts {
			if !p.Ref {
				parts = append(parts, p)
				continue
			}
			o := x.originOf(itemKey(p.Item))
			if o == nil {
				return agent.Errorf(agent.Invalid, "input: the item %.80q is not known any more: send items themselves, with store set to false", p.Item)
			}
			parts = append(parts, o.before...)
		}
		m.Parts = parts
	}
	r.Messages = slices.DeleteFunc(r.Messages, func(m wire.Message) bool { return len(m.Parts) == 0 })
	return nil
}
