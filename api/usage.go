package api

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/ledger"
)

const typeCSV = "text/csv; charset=utf-8"

// maxUsageRows bounds one answer.
const maxUsageRows = 100_000

type usageRequest struct {
	From   string `query:"from" doc:"first UTC day, as 2006-01-02; 29 days before the last unless given"`
	To     string `query:"to" doc:"last UTC day, included; today unless given"`
	By     string `query:"by" doc:"what to tell apart, separated by commas: day, agent, kind, and of calls of models alone provider, model, route, user, key; all in one row unless given"`
	Agent  string `query:"agent" doc:"only usage of this agent; - is what no agent did"`
	Format string `query:"format" default:"json" doc:"json, csv or ndjson"`
	usageOf
}

// usageOf says of what usage is wanted.
type usageOf struct {
	Provider string          `query:"provider" doc:"only calls of models of this provider"`
	Model    string          `query:"model" doc:"only calls of this model, as its provider knows it"`
	Route    string          `query:"route" doc:"only calls of models by this route, as @NAME; - is by none"`
	User     string          `query:"user" doc:"only calls of models for this user; - is for none"`
	Key      string          `query:"key" doc:"only calls of models with the virtual key of this id; - is with none"`
	Session  agent.SessionID `query:"session" doc:"only usage of this session, as far back as single events are kept"`
	Run      agent.RunID     `query:"run" doc:"only usage of this run, as far back as single events are kept"`
}

func (u usageOf) set(q *ledger.Query) {
	q.Provider, q.Model, q.Route, q.User, q.Key, q.Session, q.Run = u.Provider, u.Model, u.Route, u.User, u.Key, u.Session, u.Run
}

// usageReport is what an app used. Calls that were answered are in it.
type usageReport struct {
	From  string           `json:"from" doc:"first UTC day"`
	To    string           `json:"to" doc:"last UTC day, included"`
	Rows  []agent.UsageRow `json:"rows"`
	Total agent.UsageRow   `json:"total"`
}

func (s *Server) usage(ctx context.Context, q usageRequest) (any, error) {
	l, err := s.ledger()
	if err != nil {
		return nil, err
	}
	lq := ledger.Query{App: appOf(ctx), Agent: q.Agent}
	q.set(&lq)
	if lq.By, err = dimensions(q.By); err != nil {
		return nil, err
	}
	if lq.From, lq.To, err = s.days(q.From, q.To); err != nil {
		return nil, err
	}
	rows, err := l.Rows(ctx, lq)
	if err != nil {
		return nil, err
	}
	if len(rows) > maxUsageRows {
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: fmt.Sprintf("%d rows are too many for one answer, which may have %d", len(rows), maxUsageRows),
			Hint: "ask for fewer days, for one agent, or tell less apart",
		}
	}
	switch q.Format {
	case "json":
		out := usageReport{From: agent.UsageDay(lq.From), To: agent.UsageDay(lq.To), Rows: rows, Total: agent.UsageRow{App: lq.App}}
		for _, r := range rows {
			out.Total.Add(r)
		}
		return out, nil
	case "csv":
		b, err := usageCSV(rows)
		return raw{contentType: typeCSV, body: b}, err
	case "ndjson":
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		for _, r := range rows {
			if err := enc.Encode(r); err != nil {
				return nil, err
			}
		}
		return raw{contentType: typeNDJSON, body: b.Bytes()}, nil
	}
	return nil, agent.Errorf(agent.Invalid, "query parameter %q must be json, csv or ndjson, not %.80q", "format", q.Format)
}

func (s *Server) ledger() (*ledger.Ledger, error) {
	if l := s.rt.Ledger(); l != nil {
		return l, nil
	}
	return nil, agent.Errorf(agent.Unavailable, "this server keeps no usage ledger")
}

// usageBy is what usage can be told apart by.
var usageBy = map[string]ledger.Dimension{
	"day": ledger.ByDay, "agent": ledger.ByAgent, "kind": ledger.ByKind, "provider": ledger.ByProvider, "model": ledger.ByModel, "route": ledger.ByRoute,
	"user": ledger.ByUser, "key": ledger.ByKey,
}

func dimensions(by string) (d ledger.Dimension, err error) {
	for name := range strings.SplitSeq(by, ",") {
		name = strings.TrimSpace(name)
		one, ok := usageBy[name]
		if !ok && name != "" {
			return 0, agent.Errorf(agent.Invalid, "usage cannot be told apart by %.80q: use day, agent, kind, provider, model, route, user and key", name)
		}
		d |= one
	}
	return d, nil
}

// days reads a range of days, both included.
func (s *Server) days(from, to string) (first, last time.Time, err error) {
	last = s.o.Now().UTC()
	if to != "" {
		if last, err = dayOf("to", to); err != nil {
			return first, last, err
		}
	}
	if from == "" {
		return last.AddDate(0, 0, -29), last, nil
	}
	first, err = dayOf("from", from)
	if err == nil && agent.UsageDay(first) > agent.UsageDay(last) {
		err = agent.Errorf(agent.Invalid, "the first day, %s, is after the last, %s", agent.UsageDay(first), agent.UsageDay(last))
	}
	return first, last, err
}

func dayOf(name, s string) (time.Time, error) {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		return t, agent.Errorf(agent.Invalid, "query parameter %q must be a day such as 2026-01-31, not %.80q", name, s)
	}
	return t, nil
}

// usageCSV writes rows as RFC 4180 says, times in seconds, money in dollars; a cost that is not known is empty.
func usageCSV(rows []agent.UsageRow) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	sec := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
	err := w.Write([]string{
		"day", "app", "agent", "kind", "events", "failed", "cpu_seconds", "wall_seconds", "memory_bytes", "in_bytes", "out_bytes",
		"sent_bytes", "received_bytes", "host_calls", "fuel",
		"provider", "model", "route", "user", "key", "model_calls", "model_cached", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
		"reasoning_tokens", "cost_dollars", "unpriced_calls",
	})
	for _, r := range rows {
		kind := ""
		if r.Kind != agent.UnknownUse {
			kind = r.Kind.String()
		}
		var m agent.ModelSum
		if r.Models != nil {
			m = *r.Models
		}
		cost := ""
		if m.Micro != nil {
			cost = fmt.Sprintf("%d.%06d", *m.Micro/1_000_000, *m.Micro%1_000_000)
		}
		if err == nil {
			err = w.Write([]string{
				r.Day, string(r.App), r.Agent, kind, n(r.Events), n(r.Failed), sec(r.CPU), sec(r.Wall), n(r.Memory), n(r.In), n(r.Out),
				n(r.Sent), n(r.Received), n(r.HostCalls), n(r.Fuel),
				r.Provider, r.Model, r.Route, r.User, r.Key, n(m.Calls), n(m.Cached), n(m.Tokens.Input), n(m.Tokens.Output), n(m.Tokens.CacheRead),
				n(m.Tokens.CacheWrite + m.Tokens.CacheWrite1h), n(m.Tokens.Reasoning), cost, n(m.Unpriced),
			})
		}
	}
	w.Flush()
	if err == nil {
		err = w.Error()
	}
	return b.Bytes(), err
}

type usageEventsRequest struct {
	From  string `query:"from" doc:"only events from this time on, such as 2026-01-31T08:00:00Z; a day before the last unless given"`
	To    string `query:"to" doc:"only events before this time; now unless given"`
	Agent string `query:"agent" doc:"only events of this agent; - is what no agent did"`
	After string `query:"after" doc:"the cursor of the last event seen"`
	usageOf
}

// usageEvents streams the events that are in the ledger now, in the order in which they were written.
func (s *Server) usageEvents(ctx context.Context, q usageEventsRequest) (*stream, error) {
	l, err := s.ledger()
	if err != nil {
		return nil, err
	}
	lq := ledger.Query{App: appOf(ctx), Agent: q.Agent, To: s.o.Now()}
	q.set(&lq)
	if q.To != "" {
		if lq.To, err = momentOf("to", q.To); err != nil {
			return nil, err
		}
	}
	lq.From = lq.To.AddDate(0, 0, -1)
	if q.From != "" {
		if lq.From, err = momentOf("from", q.From); err != nil {
			return nil, err
		}
	}
	page, next, err := l.Events(ctx, lq, q.After, readBatch) // so that what is wrong with the request is its answer
	if err != nil {
		return nil, err
	}
	out := &stream{contentType: typeNDJSON, beat: []byte("\n"), close: func() {}, finish: true}
	var buf []byte
	ended := false
	out.next = func(ctx context.Context) ([]byte, error) {
		for len(page) == 0 {
			if ended || next == "" {
				return nil, io.EOF
			}
			var err error
			if page, next, err = l.Events(ctx, lq, next, readBatch); err != nil {
				return nil, err
			}
		}
		buf = buf[:0]
		for _, e := range page {
			b, err := json.Marshal(e)
			if err != nil {
				return nil, err
			}
			buf = append(append(buf, b...), '\n')
		}
		page, ended = nil, next == ""
		return buf, nil
	}
	return out, nil
}

func momentOf(name, s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t, err = time.Parse(time.DateOnly, s)
	}
	if err != nil {
		return t, agent.Errorf(agent.Invalid, "query parameter %q must be a time such as 2026-01-31T08:00:00Z, not %.80q", name, s)
	}
	return t, nil
}

type quotasRequest struct{}

// quotas tells how much of their quotas the app and its agents use now. Agents without a quota that use nothing are left out.
func (s *Server) quotas(ctx context.Context, _ quotasRequest) (list[agent.QuotaUse], error) {
	var agents []agent.Agent
	for page := (agent.Page{Limit: agent.MaxPage}); ; {
		some, next, err := s.st.Agents(ctx, appOf(ctx), page)
		if err != nil {
			return list[agent.QuotaUse]{}, err
		}
		agents = append(agents, some...)
		if page.After = next; next == "" {
			break
		}
	}
	uses, err := s.rt.QuotaUses(ctx, appOf(ctx), agents)
	out := []agent.QuotaUse{}
	for _, u := range uses {
		if idle := u; idle.Agent != "" {
			idle.App, idle.Agent = "", ""
			if idle == (agent.QuotaUse{}) {
				continue
			}
		}
		out = append(out, u)
	}
	return list[agent.QuotaUse]{Items: out}, err
}
