package api

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/skep-dev/skep/agent"
)

// headerApp names the app that a request is about; where headers cannot be set the query parameter app does.
const headerApp = "Skep-App"

// appOf returns the app that a handler's request is about.
func appOf(ctx context.Context) agent.App { return requestOf(ctx).app }

// admit finds out who asks and about which app, and refuses what that token may not do on this route.
func (s *Server) admit(req *request, r *route, c *fiber.Ctx) (err error) {
	header, inURL := string(c.Request().Header.Peek("Authorization")), false
	if r.socket {
		header, inURL = s.socketAuthorization(c)
	}
	if req.token, err = s.tokens.authenticate(req, header); err != nil {
		return err
	}
	if inURL {
		if err := s.mayBeInURL(req.token); err != nil {
			return err
		}
	}
	asked := string(c.Request().Header.Peek(headerApp))
	if asked == "" && !r.passes() {
		asked = string(c.Request().URI().QueryArgs().Peek("app"))
	}
	if req.app, err = scope(req.token, agent.App(asked), r); err != nil {
		return err
	}
	_, err = s.rt.App(req, req.app)
	return err
}

// scope returns the app of a request: the one that the token is bound to, else the one asked for, else the default one.
func scope(t agent.Token, asked agent.App, r *route) (agent.App, error) {
	bound := t.App != ""
	switch {
	case bound && asked != "" && asked != t.App:
		return "", &agent.Error{
			Kind: agent.Denied, Msg: fmt.Sprintf("this token is for app %q alone, not for %.80q", t.App, asked),
			Hint: "use a token of that app, or one that is bound to none",
		}
	case bound && r.whole:
		return "", &agent.Error{
			Kind: agent.Denied, Msg: fmt.Sprintf("this token is for app %q alone, and this is about the whole server", t.App),
			Hint: "use a token that is bound to no app",
		}
	case t.Role != agent.Owner && r.owner != "":
		return "", &agent.Error{
			Kind: agent.Denied, Msg: "a developer's token may not " + r.owner, Hint: "ask an owner to " + r.owner,
		}
	case bound:
		return t.App, nil
	case asked != "":
		return asked, nil
	}
	return agent.DefaultApp, nil
}

// judge refuses a developer who would give an agent more than it has.
func judge(t agent.Token, was, now agent.Agent) error {
	more := slices.Concat(now.Grants.Beyond(was.Grants), now.Grants.Loosened(was.Grants), now.Quota.Beyond(was.Quota))
	if t.Role == agent.Owner || len(more) == 0 {
		return nil
	}
	return &agent.Error{
		Kind: agent.Denied, Msg: fmt.Sprintf("a developer's token may not give agent %q more than it has", now.Name),
		Hint: "ask an owner to let it: " + strings.Join(more, "; "),
	}
}
