package code

import (
	"bytes"
	"slices"
	"strings"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"

	"github.com/skep-dev/skep/agent"
)

// absent are names that other engines have and cells have not, and what there is instead.
var absent = map[string]string{
	"fetch":          "scripts have no network: call a tool, such as those of the server http",
	"require":        "there are no modules of Node.js here: call a tool, such as those of the server files",
	"process":        "there is no process here: what the script needs comes as its input or from a tool",
	"Deno":           "scripts run in a cell without Deno: call a tool instead",
	"Bun":            "scripts run in a cell without Bun: call a tool instead",
	"XMLHttpRequest": "scripts have no network: call a tool, such as those of the server http",
	"WebSocket":      "scripts have no network: call a tool, such as those of the server http",
}

// mentions says whether a script speaks of what is not there.
func mentions(js []byte) bool {
	for name := range absent {
		if bytes.Contains(js, []byte(name)) {
			return true
		}
	}
	return false
}

// look finds what is wrong with one node.
func (c *checker) look(n ast.Node) {
	switch n := n.(type) {
	case *ast.DotExpression:
		c.lookIn(c.what(n.Left), n.Identifier.Name.String(), n.Identifier.Idx)
		if id, ok := n.Left.(*ast.Identifier); ok && (id.Name == "process" || id.Name == "Deno" || id.Name == "Bun") {
			c.lookAbsent(id)
		}
	case *ast.BracketExpression:
		if name, ok := text(n.Member); ok {
			c.lookIn(c.what(n.Left), name, n.Member.Idx0())
		}
	case *ast.Binding:
		if n.Initializer != nil && !c.params[n] {
			c.lookPattern(n.Target, c.what(n.Initializer))
		}
	case *ast.NewExpression:
		if id, ok := n.Callee.(*ast.Identifier); ok {
			c.lookAbsent(id)
		}
	case *ast.CallExpression:
		if id, ok := n.Callee.(*ast.Identifier); ok {
			c.lookAbsent(id)
		}
		switch t := c.what(n.Callee); {
		case t.kind == 't':
			c.lookCall(t.name, n.ArgumentList, n.Callee.Idx0())
		case t.kind == 'o' && t.name == "call" && len(n.ArgumentList) > 0:
			if name, ok := c.lookName(n.ArgumentList[0]); ok {
				c.lookCall(name, n.ArgumentList[1:], n.Callee.Idx0())
			}
		case t.kind == 'o' && t.name == "change" && len(n.ArgumentList) > 1:
			c.lookChange(n.ArgumentList[1])
		}
	}
}

func (c *checker) lookAbsent(id *ast.Identifier) {
	name := id.Name.String()
	hint, ok := absent[name]
	if ok && len(c.decls[name]) == 0 && !c.assigned[name] && !c.said[name] {
		c.said[name] = true
		c.find(id.Idx, false, "there is no "+name+" in a script with tools", hint)
	}
}

// lookIn finds servers and tools that are not there.
func (c *checker) lookIn(of thing, name string, idx file.Idx) {
	if onObjects[name] || name == "" || of.kind != 'r' && of.kind != 's' {
		return
	}
	switch is := c.member(of, name); {
	case is.kind == 't' && c.tools[is.name] == nil:
		c.find(idx, true, "the tool "+is.name+" is not granted to this script", "ask for it in the script's list of tools, or grant it to its agent")
	case is.kind != 0:
	case of.kind == 'r':
		hint := didYouMean(c.pathsOfServers(c.names.nearServers(name)))
		if hint == "" {
			hint = "await tools.search(\"...\") finds tools by what they do"
		}
		c.find(idx, true, "there is no tool server "+quote(clip(line(name), 100)), hint)
	default:
		c.find(idx, true, "the tool server "+of.server.name+" has no tool "+quote(clip(line(name), 100)), c.nearTools(agent.ToolName(of.server.name, name)))
	}
}

func (c *checker) pathsOfServers(names []string) []string {
	var out []string
	for _, name := range names {
		out = append(out, Root+"."+c.names.byName[name].ident)
	}
	return out
}

// nearTools is the hint with the tools that a name may have meant, of those that the script may call.
func (c *checker) nearTools(written string) string {
	var near []string
	for _, name := range c.names.Near(written) {
		if c.tools[name] != nil {
			near = append(near, c.names.Path(name))
		}
	}
	if len(near) == 0 {
		return "await tools.search(\"...\") finds tools by what they do"
	}
	return didYouMean(near)
}

// lookPattern finds servers and tools that a pattern takes and that are not there.
func (c *checker) lookPattern(target ast.Expression, of thing) {
	p, ok := target.(*ast.ObjectPattern)
	if !ok || of.kind == 0 {
		return
	}
	for _, p := range p.Properties {
		switch p := p.(type) {
		case *ast.PropertyShort:
			if p.Initializer == nil {
				c.lookIn(of, p.Name.Name.String(), p.Name.Idx)
			}
		case *ast.PropertyKeyed:
			if key, ok := keyOf(p); ok {
				if _, hasDefault := p.Value.(*ast.AssignExpression); !hasDefault {
					c.lookIn(of, key, p.Key.Idx0())
					c.lookPattern(p.Value, c.member(of, key))
				}
			}
		}
	}
}

// lookName finds the tool that a literal names.
func (c *checker) lookName(e ast.Expression) (string, bool) {
	written, ok := text(e)
	if !ok {
		return "", false
	}
	name, ok := c.names.Find(written)
	if !ok || c.tools[name] == nil {
		c.find(e.Idx0(), true, "there is no tool "+quote(clip(line(written), 200)), c.nearTools(written))
		return "", false
	}
	return name, true
}

// lookChange looks at the calls of a change set that are written out.
func (c *checker) lookChange(e ast.Expression) {
	list, ok := e.(*ast.ArrayLiteral)
	if !ok {
		return
	}
	for _, e := range list.Value {
		o, ok := e.(*ast.ObjectLiteral)
		if !ok {
			continue
		}
		var tool, args ast.Expression
		for _, p := range o.Value {
			k, ok := p.(*ast.PropertyKeyed)
			if !ok {
				continue
			}
			switch key, _ := keyOf(k); key {
			case "tool":
				tool = k.Value
			case "args":
				args = k.Value
			}
		}
		if tool == nil {
			continue
		}
		if name, ok := c.lookName(tool); ok && args != nil {
			c.lookCall(name, []ast.Expression{args}, o.LeftBrace)
		}
	}
}

// lookCall finds arguments that do not fit.
func (c *checker) lookCall(name string, args []ast.Expression, idx file.Idx) {
	t := c.tools[name]
	if t == nil || slices.ContainsFunc(args, func(e ast.Expression) bool { _, ok := e.(*ast.SpreadElement); return ok }) {
		return
	}
	root, err := parse(t.Input)
	if err != nil {
		return
	}
	l := &literals{checker: c, doc: document{root: root}, tool: name}
	if len(args) == 0 {
		l.missing(follow(&l.doc, root), nil, "", idx)
		return
	}
	switch a := args[0].(type) {
	case *ast.ObjectLiteral:
		found := len(c.found)
		l.object(root, a, "")
		if value, ok := constant(a, 0); ok && len(c.found) == found {
			if err := c.valid.Validate(t.Input, value); err != nil {
				e := agent.AsError(err)
				c.find(a.LeftBrace, true, name+": "+strings.TrimPrefix(e.Msg, "the arguments do not fit: "), e.Hint)
			}
		}
	case *ast.StringLiteral, *ast.NumberLiteral, *ast.BooleanLiteral, *ast.TemplateLiteral, *ast.ArrayLiteral:
		c.find(args[0].Idx0(), true, name+" takes one object, not "+withArticle(kindOfNode(a)), l.example(root))
	}
}

// example is a hint that shows how a tool is called.
func (l *literals) example(root *value) string {
	var parts []string
	for _, p := range properties(follow(&l.doc, root)) {
		if (p.required || len(parts) == 0) && len(parts) < 4 {
			parts = append(parts, field(p.name)+": ...")
		}
	}
	return "call it as " + l.names.Path(l.tool) + "({ " + strings.Join(parts, ", ") + " })"
}
