package api

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// maxDetail bounds what an audit log keeps of one change, in bytes.
const maxDetail = 16 << 10

// audit writes to the request's app's audit log what the request has changed. It is called before the request is answered, so a
// change that was answered is in the log.
func (s *Server) audit(ctx context.Context, action, name, detail string) error {
	return s.auditOf(ctx, appOf(ctx), action, name, detail)
}

func (s *Server) auditOf(ctx context.Context, app agent.App, action, name, detail string) error {
	req := requestOf(ctx)
	return s.auditChange(ctx, app, agent.Change{Token: req.token.ID, Action: action, Name: name, Detail: detail, Request: req.id})
}

// auditChange is for changes that are made where ctx is of no request, too.
func (s *Server) auditChange(ctx context.Context, app agent.App, c agent.Change) error {
	if len(c.Detail) > maxDetail {
		c.Detail = strings.ToValidUTF8(c.Detail[:maxDetail], "") + "..."
	}
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return s.rt.Audit(ctx, app, agent.Event{Kind: agent.EventChanged, Data: b})
}

// difference says in words what a change made of an agent.
func difference(was, now agent.Agent) string {
	var parts []string
	add := func(what string, words []string) {
		if len(words) > 0 {
			parts = append(parts, what+strings.Join(words, "; "))
		}
	}
	if was.Plugin != now.Plugin {
		parts = append(parts, "runs "+now.Plugin)
	}
	add("may now: ", append(now.Grants.Beyond(was.Grants), now.Grants.Loosened(was.Grants)...))
	add("may no longer: ", was.Grants.Beyond(now.Grants))
	add("quota: ", quotaChange(was.Quota, now.Quota))
	if !maps.Equal(was.Config, now.Config) {
		parts = append(parts, "config")
	}
	if was.Limits != now.Limits {
		parts = append(parts, "limits")
	}
	if was.Description != now.Description {
		parts = append(parts, "description")
	}
	return strings.Join(parts, ". ")
}

// quotaChange says a quota when it differs from what it was.
func quotaChange(was, now agent.Quota) []string {
	switch {
	case was == now:
		return nil
	case now == agent.Quota{}:
		return []string{"none"}
	}
	return now.Words()
}

type auditRequest struct {
	eventQuery
	Kind  string `query:"kind" doc:"only events of this kind, such as secret.used"`
	Agent string `query:"agent" doc:"only events about this agent"`
	Since string `query:"since" doc:"only events from this time on: RFC 3339, or a duration such as 24h before now"`
}

// auditLog answers with a list of events or a stream of them.
func (s *Server) auditLog(ctx context.Context, q auditRequest) (any, error) {
	p := part{log: store.AuditLog(appOf(ctx))}
	var kind agent.EventKind
	if q.Kind != "" {
		if err := kind.UnmarshalText([]byte(q.Kind)); err != nil {
			return nil, err
		}
	}
	if q.Kind != "" || q.Agent != "" {
		p.only = func(e agent.Event) bool {
			return (q.Kind == "" || e.Kind == kind) && (q.Agent == "" || isAbout(e, q.Agent))
		}
	}
	if q.Since != "" {
		since, err := sinceTime(q.Since, s.o.Now())
		if err != nil {
			return nil, err
		}
		if p.first, err = s.firstSince(ctx, p.log, since); err != nil {
			return nil, err
		}
	}
	return s.events(ctx, q.eventQuery, p)
}

// isAbout reports whether an event of an audit log is about an agent: what it did, or what was done to it.
func isAbout(e agent.Event, name string) bool {
	var d struct {
		Agent, Action, Name string
	}
	if json.Unmarshal(e.Data, &d) != nil {
		return false
	}
	what, _, _ := strings.Cut(d.Action, ".")
	return d.Agent == name || d.Name == name && slices.Contains([]string{"agent", "state", "instance", "storage", "alarm"}, what)
}
