package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox/preview"
	"github.com/skep-dev/skep/tools/link"
)

// approvePath is what the paths of links begin with. What follows is a capability, which no log has.
const approvePath = "/approve/"

const (
	typeHTML  = "text/html"
	maxAnswer = 64 << 10
)

//go:embed approve.html
var approveHTML string

//go:embed approve.css
var approveCSS string

var (
	approvePage = template.Must(template.New("approve").Parse(approveHTML))
	cssHash     = sha256.Sum256([]byte(approveCSS))

	// approveHeaders keep the page from everybody else: no cache has it, no other page frames it or learns its address, and it loads nothing.
	approveHeaders = [][2]string{
		{"Content-Security-Policy", "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(cssHash[:]) +
			"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"},
		{"Cache-Control", "no-store"}, {"Referrer-Policy", "no-referrer"}, {"X-Content-Type-Options", "nosniff"}, {"X-Frame-Options", "DENY"},
		{"X-Robots-Tag", "noindex, nofollow"}, {"Cross-Origin-Opener-Policy", "same-origin"}, {"Vary", "Accept"},
	}
)

// newLinkKey is a key for a server that was given none: its links last no longer than it does.
func newLinkKey() []byte {
	key := make([]byte, link.KeySize)
	rand.Read(key)
	return key
}

// loggedPath is a path as a log may have it.
func loggedPath(path string) string {
	for _, p := range []string{approvePath, preview.Path} {
		if strings.HasPrefix(path, p) {
			return p + "..."
		}
	}
	return path
}

type approveRequest struct {
	Token  string `path:"token" doc:"of a link"`
	Accept string `header:"Accept" doc:"text/html or application/json"`
}

// openApproval is what a link's holder sees.
type openApproval struct {
	Approval agent.Approval `json:"approval"`
	Expires  string         `json:"expires" doc:"when the link does"`
}

// showApprove shows the question of a link. It changes nothing: whoever previews links may ask for it.
func (s *Server) showApprove(ctx context.Context, q approveRequest) (raw, error) {
	l, a, err := s.openLink(ctx, q.Token)
	if err != nil {
		return s.approveReply(ctx, q.Accept, approveView{}, nil, err)
	}
	a = s.whole(ctx, a)
	expires := l.Expires.Format("2006-01-02 15:04 MST")
	return s.approveReply(ctx, q.Accept, viewOf(a, expires), openApproval{a, expires}, nil)
}

// maxWhole is how much of all arguments together a link's page shows, in bytes.
const maxWhole = 512 << 10

// whole returns a question with all of the arguments of which it has the beginning only, as far as they fit on a page.
func (s *Server) whole(ctx context.Context, a agent.Approval) agent.Approval {
	a.Calls = slices.Clone(a.Calls)
	left := maxWhole
	for i, c := range a.Calls {
		if agent.DigestOf(c.Args) == c.ArgsDigest {
			continue
		}
		args, err := s.rt.Arguments(ctx, a.App, a.ID, i+1)
		if err == nil && len(args) <= left {
			a.Calls[i].Args, left = args, left-len(args)
		}
	}
	return a
}

func (s *Server) openLink(ctx context.Context, text string) (link.Link, agent.Approval, error) {
	l, err := link.Open(s.o.LinkKey, text, s.o.Now())
	if err != nil {
		return l, agent.Approval{}, err
	}
	a, err := s.rt.Approval(ctx, l.App, l.ID)
	if err == nil {
		err = l.Check(a)
	}
	if e := agent.AsError(err); err != nil && e.Hint == "" && e.Kind != agent.Internal {
		told := *e
		told.Hint = "a link answers one question, once, while its run waits for it"
		err = &told
	}
	return l, a, err
}

type postApproveRequest struct {
	approveRequest
	Type string `header:"Content-Type" doc:"application/x-www-form-urlencoded or application/json"`
	Body []byte `body:"raw"`
}

// linkAnswer is an answer by a link: of the calls that were asked about, and no more.
type linkAnswer struct {
	Allow   *bool           `json:"allow"`
	Reason  string          `json:"reason,omitempty"`
	Content json.RawMessage `json:"content,omitempty" doc:"to a question of a tool's server: the object that it asks for"`
}

// linkAnswered says what was answered.
type linkAnswered struct {
	ID    agent.ApprovalID `json:"id"`
	Allow bool             `json:"allow"`
}

// postApprove answers the question of a link.
func (s *Server) postApprove(ctx context.Context, q postApproveRequest) (raw, error) {
	l, a, err := s.openLink(ctx, q.Token)
	var said linkAnswer
	if err == nil {
		said, err = readLinkAnswer(a, q.Type, q.Body)
	}
	if err == nil {
		_, err = s.answerAll(ctx, l.App, "link "+l.Name, []agent.ApprovalID{l.ID}, agent.ApprovalAnswer{
			Allow: *said.Allow, Reason: said.Reason, Content: said.Content,
		})
	}
	if err != nil {
		return s.approveReply(ctx, q.Accept, approveView{}, nil, err)
	}
	done := "Refused."
	if *said.Allow {
		done = "Allowed."
	}
	return s.approveReply(ctx, q.Accept, approveView{Title: done, Done: "The run goes on. You can close this page; its link is used up."}, linkAnswered{l.ID, *said.Allow}, nil)
}

func readLinkAnswer(a agent.Approval, contentType string, body []byte) (said linkAnswer, err error) {
	t, _, _ := mime.ParseMediaType(cmp.Or(contentType, typeJSON))
	switch t {
	case typeJSON:
		if err = decodeJSON(body, &said); err == nil && said.Allow == nil {
			err = &agent.Error{Kind: agent.Invalid, Msg: `field "allow" is missing`, Hint: "say true or false"}
		}
		return said, err
	case "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return said, agent.Errorf(agent.Invalid, "the form cannot be read")
		}
		allow := form.Get("answer") == "allow"
		if !allow && form.Get("answer") != "deny" {
			return said, &agent.Error{Kind: agent.Invalid, Msg: `field "answer" is neither allow nor deny`, Hint: "use the buttons of the page"}
		}
		said = linkAnswer{Allow: &allow, Reason: form.Get("reason")}
		if allow && a.Asks != nil {
			said.Content, err = contentOf(*a.Asks, form)
		}
		return said, err
	}
	return said, invalidAs(http.StatusUnsupportedMediaType, "this takes a form or JSON", "open the link in a browser")
}

// approveReply answers a link's holder with a page or JSON, errors too: the address of the request is not for the log that others go to.
func (s *Server) approveReply(ctx context.Context, accept string, page approveView, value any, err error) (raw, error) {
	form, bad := negotiate(accept, typeHTML, typeJSON)
	if bad != nil {
		form = typeJSON
		err = cmp.Or(err, bad)
	}
	out := raw{header: approveHeaders, contentType: typeJSON}
	if err != nil {
		p := problemOf(err, requestOf(ctx).id)
		if p.Kind == agent.Internal {
			s.o.Log.ErrorContext(ctx, "api: a link could not be served", "err", err)
		}
		out.status, out.body, out.contentType = p.Status, p.encode(), typeProblem
		page = approveView{Title: "This cannot be answered", Error: p.Detail, Hint: p.Hint}
	} else if out.body, err = encodeJSON(value); err != nil {
		return raw{}, err
	}
	if form == typeHTML {
		page.CSS = template.CSS(approveCSS)
		var b bytes.Buffer
		if err := approvePage.Execute(&b, page); err != nil {
			return raw{}, err
		}
		out.body, out.contentType = b.Bytes(), typeHTML+"; charset=utf-8"
	}
	return out, nil
}

func approveResults() map[int]reflect.Type {
	return map[int]reflect.Type{http.StatusOK: reflect.TypeFor[openApproval]()}
}

func answeredResults() map[int]reflect.Type {
	return map[int]reflect.Type{http.StatusOK: reflect.TypeFor[linkAnswered]()}
}
