package code

import (
	"slices"

	"github.com/dop251/goja/ast"

	"github.com/skep-dev/skep/agent"
)

// declare notes where variables get their values.
func (c *checker) declare(n ast.Node) {
	switch n := n.(type) {
	case *ast.ParameterList:
		for _, p := range n.List {
			c.bind(p.Target, decl{})
			c.params[p] = true
		}
		c.bind(n.Rest, decl{})
	case *ast.Binding:
		if !c.params[n] {
			c.bind(n.Target, decl{from: n.Initializer})
		}
	case *ast.CatchStatement:
		c.bind(n.Parameter, decl{})
	case *ast.ForDeclaration:
		c.bind(n.Target, decl{})
	case *ast.ForIntoVar:
		c.bind(n.Binding.Target, decl{})
		c.params[n.Binding] = true
	case *ast.FunctionLiteral:
		if n.Name != nil {
			c.bind(n.Name, decl{})
		}
	case *ast.ClassLiteral:
		if n.Name != nil {
			c.bind(n.Name, decl{})
		}
	case *ast.AssignExpression:
		c.assign(n.Left)
	case *ast.ForIntoExpression:
		c.assign(n.Expression)
	case *ast.UnaryExpression:
		if op := n.Operator.String(); op == "++" || op == "--" {
			c.assign(n.Operand)
		}
	}
}

// maxPath is how deep a pattern may take a value apart.
const maxPath = 8

// bind declares the names of a pattern that takes d apart.
func (c *checker) bind(target ast.Expression, d decl) {
	switch t := target.(type) {
	case *ast.Identifier:
		name := t.Name.String()
		c.decls[name] = append(c.decls[name], d)
	case *ast.AssignExpression: // a default
		c.bind(t.Left, decl{})
	case *ast.ArrayPattern:
		for _, e := range t.Elements {
			c.bind(e, decl{})
		}
		c.bind(t.Rest, decl{})
	case *ast.ObjectPattern:
		for _, p := range t.Properties {
			switch p := p.(type) {
			case *ast.PropertyShort:
				part := d.member(p.Name.Name.String())
				if p.Initializer != nil {
					part = decl{}
				}
				c.bind(&p.Name, part)
			case *ast.PropertyKeyed:
				part := decl{}
				if key, ok := keyOf(p); ok {
					part = d.member(key)
				}
				c.bind(p.Value, part)
			}
		}
		c.bind(t.Rest, decl{})
	}
}

func (d decl) member(name string) decl {
	if d.from == nil || len(d.path) >= maxPath {
		return decl{}
	}
	return decl{from: d.from, path: append(slices.Clone(d.path), name)}
}

// keyOf is the name of a property that is not computed.
func keyOf(p *ast.PropertyKeyed) (string, bool) {
	if p.Computed {
		return "", false
	}
	switch k := p.Key.(type) {
	case *ast.StringLiteral:
		return k.Value.String(), true
	case *ast.Identifier:
		return k.Name.String(), true
	}
	return "", false
}

// assign notes that variables get other values than where they are declared.
func (c *checker) assign(target ast.Expression) {
	switch t := target.(type) {
	case *ast.Identifier:
		c.assigned[t.Name.String()] = true
	case *ast.AssignExpression:
		c.assign(t.Left)
	case *ast.ArrayPattern:
		for _, e := range t.Elements {
			c.assign(e)
		}
		c.assign(t.Rest)
	case *ast.ObjectPattern:
		for _, p := range t.Properties {
			switch p := p.(type) {
			case *ast.PropertyShort:
				c.assigned[p.Name.Name.String()] = true
			case *ast.PropertyKeyed:
				c.assign(p.Value)
			}
		}
		c.assign(t.Rest)
	case *ast.ArrayLiteral:
		for _, e := range t.Value {
			c.assign(e)
		}
	}
}

// what is what an expression surely is.
func (c *checker) what(e ast.Expression) thing {
	switch e := e.(type) {
	case *ast.Identifier:
		return c.variable(e.Name.String())
	case *ast.DotExpression:
		return c.member(c.what(e.Left), e.Identifier.Name.String())
	case *ast.BracketExpression:
		if name, ok := text(e.Member); ok {
			return c.member(c.what(e.Left), name)
		}
	case *ast.OptionalChain:
		return c.what(e.Expression)
	case *ast.Optional:
		return c.what(e.Expression)
	case *ast.SequenceExpression:
		if n := len(e.Sequence); n > 0 {
			return c.what(e.Sequence[n-1])
		}
	}
	return thing{}
}

// text is the value of a literal that is text.
func text(e ast.Expression) (string, bool) {
	switch e := e.(type) {
	case *ast.StringLiteral:
		return e.Value.String(), true
	case *ast.TemplateLiteral:
		if e.Tag == nil && len(e.Expressions) == 0 && len(e.Elements) == 1 {
			return e.Elements[0].Parsed.String(), true
		}
	}
	return "", false
}

// variable is what a name stands for, wherever in the script: with several variables of that name it is known only if all are the same.
func (c *checker) variable(name string) thing {
	if c.assigned[name] || slices.Contains(c.active, name) || len(c.active) > 50 {
		return thing{}
	}
	decls := c.decls[name]
	if len(decls) == 0 {
		if name == Root {
			return thing{kind: 'r'}
		}
		return thing{}
	}
	if known, ok := c.values[name]; ok {
		return known
	}
	c.active = append(c.active, name)
	var is thing
	for i, d := range decls {
		x := d.is
		if d.from != nil {
			x = c.what(d.from)
			for _, m := range d.path {
				x = c.member(x, m)
			}
		}
		if i > 0 && x != is {
			is = thing{}
			break
		}
		is = x
	}
	c.active = c.active[:len(c.active)-1]
	if len(c.active) == 0 {
		c.values[name] = is
	}
	return is
}

// member is what a member of a thing is.
func (c *checker) member(of thing, name string) thing {
	switch of.kind {
	case 'n':
		if name == Root {
			return thing{kind: 'r'}
		}
	case 'r':
		if onTools[name] {
			return thing{kind: 'o', name: name}
		}
		if s := c.names.byName[name]; s != nil && !onObjects[name] {
			return thing{kind: 's', server: s}
		}
	case 's':
		if m, ok := of.server.byName[name]; ok && !onObjects[name] {
			return thing{kind: 't', name: agent.ToolName(of.server.name, m)}
		}
	}
	return thing{}
}
