package script

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

// What the code has asked of tools happens in the world, so none of it is lost: what a function came to, also when it threw, is held
// back until every tool that it called has answered, as long as the call's limits allow. Until then it can be suspended.

func (r *request) ofTool() bool { return r.name == abi.CallTool || r.name == abi.CallToolChange }

// lingers reports whether calls of tools are under way now that the function has returned, or thrown, and tells the author of each
// once.
func (v *vm) lingers(threw bool) bool {
	open := false
	for _, r := range v.inFlight() {
		if !r.ofTool() {
			continue
		}
		open = true
		if r.number <= v.warned {
			continue
		}
		v.warned = r.number
		if threw {
			v.cell.Log(agent.LevelWarn, v.describe(r)+" was under way when the code failed: its error waits for that")
		} else {
			v.cell.Log(agent.LevelWarn, v.describe(r)+" was not awaited: the result waits for it")
		}
	}
	return open
}

// named adds to the error of a limit which calls of tools were under way.
func (v *vm) named(err error) error {
	const most = 8
	e := agent.AsError(err)
	if err == nil || e.Kind != agent.Exhausted {
		return err
	}
	var list []string
	n := 0
	for _, r := range v.inFlight() {
		if !r.ofTool() {
			continue
		}
		if n++; n <= most {
			list = append(list, v.describe(r))
		}
	}
	if n == 0 {
		return err
	}
	if n > most {
		list = append(list, fmt.Sprintf("%d more", n-most))
	}
	more := *e
	more.Msg += "; under way: " + strings.Join(list, ", ")
	return &more
}

// describe writes a call of a tool as its author knows it: tools.SERVER.METHOD at FILE:LINE.
func (v *vm) describe(r request) string {
	text := "tools.change"
	if r.name == abi.CallTool {
		var in struct{ Tool string }
		_ = json.Unmarshal(r.body, &in) // the prelude wrote it
		server, method, split := agent.SplitTool(in.Tool)
		text = "tools" + dotted(server)
		if split {
			text += dotted(method)
		}
	}
	if v.source == nil {
		return text
	}
	if p, ok := find(v.source, r.at); ok {
		p.Column = 0
		text += " at " + p.String()
	}
	return text
}

var plainName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)

// dotted writes a member's name as code does.
func dotted(name string) string {
	if plainName.MatchString(name) {
		return "." + name
	}
	return "[" + quote(name) + "]"
}
