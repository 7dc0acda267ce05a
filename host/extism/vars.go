package extism

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

// A module's variables last as long as its call, unless its agent was granted state: then each is a key of the agent's state,
// read when it is asked for and durable once it is set. Extism has no status for a variable that could not be read or kept, so
// that ends the call.

// varPrefix sets variables apart from the other keys of an agent's state.
const varPrefix = "extism:var:"

func varGet(c *cell.Cell, g *guest, a []uint64) {
	name := g.take(c, a[0])
	value := g.vars[name]
	if g.kept {
		value = readVar(c, name)
	}
	a[0] = g.put(c, value)
}

// varSet removes the variable when there is no value.
func varSet(c *cell.Cell, g *guest, a []uint64) {
	name := g.take(c, a[0])
	var value []byte
	if a[1] != 0 {
		value = []byte(g.take(c, a[1]))
	}
	if g.kept {
		writeVar(c, name, value, a[1] != 0)
	} else {
		g.setVar(c, name, value, a[1] != 0)
	}
}

// setVar keeps a variable for this call, against the memory limit.
func (g *guest) setVar(c *cell.Cell, name string, value []byte, there bool) {
	const cost = 64 // of an entry
	if old, ok := g.vars[name]; ok {
		c.Hold(-int64(len(name)+len(old)) - cost)
		delete(g.vars, name)
	}
	if !there {
		return
	}
	if !c.Hold(int64(len(name)+len(value)) + cost) {
		c.Fail(full(c))
	}
	if g.vars == nil {
		g.vars = map[string][]byte{}
	}
	g.vars[name] = value
}

// varKey is the state key of a variable. JSON would make others of bytes that are not UTF-8.
func varKey(c *cell.Cell, name string) string {
	if !utf8.ValidString(name) {
		c.Fail(agent.Errorf(agent.Failed, "the name of the variable %.80q is not UTF-8, so it cannot be kept in the agent's state", name))
	}
	return varPrefix + name
}

func readVar(c *cell.Cell, name string) []byte {
	var got abi.StateEntries
	if err := ask(c, abi.CallStateGet, abi.StateGet{Keys: []string{varKey(c, name)}}, &got); err != nil {
		c.Fail(varError("read", name, err))
	}
	if len(got.Entries) == 0 {
		return nil
	}
	switch v := got.Entries[0].StateValue; { // others than variables' own are for those who look in
	case v.JSON != nil:
		return v.JSON
	case v.Text != nil:
		return []byte(*v.Text)
	default:
		return v.Base64
	}
}

func writeVar(c *cell.Cell, name string, value []byte, there bool) {
	call, edit := abi.CallStateDelete, abi.StateEdit{Key: varKey(c, name)}
	if there {
		call, edit.StateValue = abi.CallStateSet, abi.StateValue{Type: agent.TypeBytes, Base64: value}
	}
	if err := ask(c, call, edit, &json.RawMessage{}); err != nil {
		c.Fail(varError("set", name, err))
	}
}

// varError says which variable an error is about.
func varError(did, name string, err error) error {
	e := *agent.AsError(err)
	wrapped := agent.AsError(agent.Errorf(e.Kind, "the variable %.80q could not be %s: %s", name, did, e.Msg))
	wrapped.Err, wrapped.Hint, wrapped.Limit, wrapped.After = e.Err, e.Hint, e.Limit, e.After
	return wrapped
}
