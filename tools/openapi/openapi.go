// Package openapi makes tools of an HTTP API that an OpenAPI document describes (versions 3.0 and 3.1): one of each operation. Requests leave by
// host/egress, to the origin of the API alone.
//
// What the document says of its operations are hints: GET, HEAD, OPTIONS and TRACE look and change nothing, the others do, and PUT and DELETE are the
// same when they are made again (RFC 9110, sections 9.2.1 and 9.2.2). Whether they are believed is for the record of the server to say.
package openapi

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/tools"
)

// MaxDocument is the most bytes of a document.
const MaxDocument = 8 << 20

// Options of the sources of APIs.
type Options struct {
	Egress  *egress.Egress // to public addresses
	Private *egress.Egress // for records that may lead to private ones; nil refuses them

	// Document returns a document that was kept.
	Document func(ctx context.Context, d agent.Digest) ([]byte, error)
	// Sign replaces {{secret:NAME}} in a request that goes to a server, where allow lets that secret be used. nil has no secrets.
	Sign func(ctx context.Context, s agent.ToolServer, allow func(name string) error, r *http.Request, to agent.Request) (egress.Cleaner, error)
}

// Opener opens sources of kind OpenAPI.
func Opener(o Options) tools.Opener {
	return func(ctx context.Context, s agent.ToolServer, _ func()) (tools.Source, error) {
		text, err := o.Document(ctx, s.Document)
		if err != nil {
			return nil, err
		}
		doc, err := parse(text)
		if err != nil {
			return nil, err
		}
		base, err := doc.base(s)
		if err != nil {
			return nil, err
		}
		out := o.Egress
		if s.Private {
			out = o.Private
		}
		if out == nil {
			return nil, agent.Errorf(agent.Unavailable, "this server makes no requests to private addresses")
		}
		return &source{opts: o, out: out, record: s, doc: doc, base: base, secrets: secretsOf(s), since: time.Now()}, nil
	}
}

// Summary is what Check found in a document.
type Summary struct {
	Title, Version string
	URL            string   // of the API, as the document says; may be relative to where the document came from
	Tools          int      // operations
	Auth           []string // how requests are to be authorised, in words
}

// Check reads a document. What is wrong with it is an Invalid error that says where.
func Check(text []byte) (Summary, error) {
	doc, err := parse(text)
	if err != nil {
		return Summary{}, err
	}
	return doc.summary(), nil
}

// CheckServer is Check for the record of a server, whose document text is: its URL must be there and whole.
func CheckServer(s agent.ToolServer, text []byte) (Summary, error) {
	doc, err := parse(text)
	if err != nil {
		return Summary{}, err
	}
	if _, err := doc.base(s); err != nil {
		return Summary{}, err
	}
	return doc.summary(), nil
}

func (d *document) summary() Summary {
	return Summary{Title: d.title, Version: d.version, URL: d.server, Tools: len(d.ops), Auth: d.auth}
}

// source is one API.
type source struct {
	opts    Options
	out     *egress.Egress
	record  agent.ToolServer
	doc     *document
	base    base
	secrets map[string]bool // that its header and URL name
	since   time.Time
}

func (s *source) Tools(context.Context) ([]tools.Offer, error) {
	list := make([]tools.Offer, 0, len(s.doc.ops))
	for _, op := range s.doc.ops {
		list = append(list, op.offer(s.record.Header))
	}
	return list, nil
}

func (s *source) Status() agent.ToolStatus {
	return agent.ToolStatus{State: agent.ServerReady, Tools: len(s.doc.ops), Version: s.doc.version, Since: s.since}
}

func (s *source) Close() error { return nil }

// offer is the operation as a tool. Headers that the record sets are none of the caller's business.
func (op *operation) offer(set map[string]string) tools.Offer {
	in := op.input
	for _, p := range op.params {
		if p.in == "header" && isSet(set, p.name) || isKey(p) {
			in = without(in, p.arg, isKey(p))
		}
	}
	schema, _ := json.Marshal(in) // unreachable: it was read from JSON
	t := tools.Offer{Tool: agent.Tool{
		Method: op.name, Title: op.title, Description: op.description, Input: schema, Output: op.output,
	}}
	read := safe(op.method)
	again := read || op.method == http.MethodPut || op.method == http.MethodDelete
	open := true
	t.Hints = &tools.Hints{ReadOnly: &read, Idempotent: &again, OpenWorld: &open}
	if !read && again {
		t.Hints.Destructive = &again
	}
	return t
}

func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// isKey reports whether a parameter is the key of a request that may be made again, which is filled in.
func isKey(p param) bool { return p.in == "header" && strings.EqualFold(p.name, "Idempotency-Key") }

func isSet(set map[string]string, name string) bool {
	for n := range set {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// without is the schema of an object without a property, or where keep is said with it as one that may be left out.
func without(in schema, arg string, keep bool) schema {
	out, props := maps.Clone(in), schema{}
	for k, v := range in["properties"].(schema) {
		if keep || k != arg {
			props[k] = v
		}
	}
	out["properties"] = props
	var required []string
	names, _ := in["required"].([]string)
	for _, n := range names {
		if n != arg {
			required = append(required, n)
		}
	}
	delete(out, "required")
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}
