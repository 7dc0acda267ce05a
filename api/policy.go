package api

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools"
	"github.com/skep-dev/skep/tools/policy"
)

// policyDoc is how an app's policy is kept. The catalogue of tools reads its text.
type policyDoc struct {
	Revision int           `json:"revision" doc:"counts from 1; 0 is the policy of an app that has set none"`
	Text     string        `json:"text"`
	By       agent.TokenID `json:"by,omitempty" doc:"the token that set it"`
	Created  time.Time     `json:"created,omitzero"`
}

type getPolicyRequest struct {
	Revision int `query:"revision" doc:"a former one; the one that holds unless given"`
}

func (s *Server) getPolicy(ctx context.Context, q getPolicyRequest) (policyDoc, error) {
	now, _, err := s.policyNow(ctx)
	if err != nil || q.Revision == 0 || q.Revision == now.Revision {
		return now, err
	}
	var doc policyDoc
	_, err = s.st.Doc(ctx, store.Policies, appOf(ctx), formerName(q.Revision), &doc)
	if agent.KindOf(err) == agent.NotFound {
		err = &agent.Error{Kind: agent.NotFound, Msg: fmt.Sprintf("revision %d of the policy is not kept", q.Revision), Hint: fmt.Sprintf("the last %d are", keptPolicies)}
	}
	return doc, err
}

// policyNow returns the policy that holds, and the revision of its document in the store: 0 when there is none.
func (s *Server) policyNow(ctx context.Context) (doc policyDoc, rev int64, err error) {
	rev, err = s.st.Doc(ctx, store.Policies, appOf(ctx), tools.PolicyName, &doc)
	if agent.KindOf(err) == agent.NotFound {
		return policyDoc{Text: policy.DefaultText}, 0, nil
	}
	return doc, rev, err
}

type newPolicy struct {
	Text     string `json:"text" doc:"YAML; an empty one means the default"`
	Revision *int   `json:"revision,omitempty" doc:"that it replaces; any unless given"`
}

type putPolicyRequest struct {
	Body newPolicy `body:"json"`
}

func (s *Server) putPolicy(ctx context.Context, q putPolicyRequest) (policyDoc, error) {
	if q.Body.Text == "" {
		q.Body.Text = policy.DefaultText
	}
	p, err := policy.Parse([]byte(q.Body.Text), tools.PolicyName)
	if err != nil {
		return policyDoc{}, err
	}
	if t := requestOf(ctx).token; p.Commands() && t.App != "" {
		return policyDoc{}, &agent.Error{
			Kind: agent.Denied, Msg: "a hook that is a program runs as the server does, so only a token for the whole server can set one, and this one is for app " + string(t.App),
			Hint: "make the hook a function of an agent: before PATTERN: agent NAME.FUNCTION",
		}
	}
	known, err := s.knownTools(ctx, p.Examples() > 0)
	if err != nil {
		return policyDoc{}, err
	}
	if failed := p.Test(known...); len(failed) > 0 {
		return policyDoc{}, &agent.Error{Kind: agent.Invalid, Msg: "the policy's examples do not come out: " + failureText(failed), Hint: "skep policy test FILE shows each; change the rules, or the examples"}
	}
	was, rev, err := s.policyNow(ctx)
	if err != nil {
		return policyDoc{}, err
	}
	if q.Body.Revision != nil && *q.Body.Revision != was.Revision {
		return policyDoc{}, &agent.Error{Kind: agent.Conflict, Msg: fmt.Sprintf("the policy is at revision %d, and not %d", was.Revision, *q.Body.Revision), Hint: "read it again, and make the change to what it is now"}
	}
	doc := policyDoc{Revision: was.Revision + 1, Text: q.Body.Text, By: requestOf(ctx).token.ID, Created: s.o.Now().UTC()}
	if was.Revision > 0 {
		if _, err := s.st.PutDoc(ctx, store.Policies, appOf(ctx), formerName(was.Revision), store.AnyRev, was); err != nil {
			return policyDoc{}, err
		}
		if _, rev, err = s.policyNow(ctx); err != nil {
			return policyDoc{}, err
		}
	}
	if _, err := s.st.PutDoc(ctx, store.Policies, appOf(ctx), tools.PolicyName, rev, doc); err != nil {
		return policyDoc{}, err
	}
	if err := s.prunePolicies(ctx, doc.Revision); err != nil {
		return policyDoc{}, err
	}
	return doc, s.audit(ctx, "policy.set", tools.PolicyName, fmt.Sprintf("revision %d, %d bytes", doc.Revision, len(doc.Text)))
}

func failureText(failed []policy.Failure) string {
	f := failed[0]
	text := fmt.Sprintf("%s: %s is %s, and should be %s", f.From, f.Example, f.Got, f.Want)
	if n := len(failed) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text
}

// knownTools lists the app's tools when they are wanted and there are any.
func (s *Server) knownTools(ctx context.Context, wanted bool) ([]agent.Tool, error) {
	if !wanted || s.o.Tools == nil {
		return nil, nil
	}
	return s.o.Tools.Tools(ctx, appOf(ctx))
}

// keptPolicies is how many former policies of an app are kept.
const keptPolicies = 20

func formerName(revision int) string { return fmt.Sprintf("%s@%09d", tools.PolicyName, revision) }

// prunePolicies deletes former policies that are too many.
func (s *Server) prunePolicies(ctx context.Context, now int) error {
	var old []string
	page := agent.Page{Limit: agent.MaxPage}
	_, err := s.st.Docs(ctx, store.Policies, appOf(ctx), tools.PolicyName+"@", page, func(name string, _ int64, _ []byte) error {
		old = append(old, name)
		return nil
	})
	if err != nil {
		return err
	}
	for len(old) > keptPolicies {
		if err := s.st.DeleteDoc(ctx, store.Policies, appOf(ctx), old[0], store.AnyRev); err != nil && agent.KindOf(err) != agent.NotFound {
			return err
		}
		old = old[1:]
	}
	return nil
}

// policyRevision is a former policy without its text.
type policyRevision struct {
	Revision int           `json:"revision"`
	By       agent.TokenID `json:"by,omitempty"`
	Created  time.Time     `json:"created"`
	Bytes    int           `json:"bytes"`
	Current  bool          `json:"current,omitempty"`
}

func (s *Server) policyHistory(ctx context.Context, q pageQuery) (list[policyRevision], error) {
	limit, err := limitOf(q.Limit)
	if err != nil {
		return list[policyRevision]{}, err
	}
	after := 0
	if q.After != "" {
		if after, err = strconv.Atoi(q.After); err != nil || after < 1 {
			return list[policyRevision]{}, agent.Errorf(agent.Invalid, "after is no cursor of this list: it is next of the page before")
		}
	}
	now, rev, err := s.policyNow(ctx)
	if err != nil {
		return list[policyRevision]{}, err
	}
	var all []policyRevision
	_, err = s.st.Docs(ctx, store.Policies, appOf(ctx), tools.PolicyName+"@", agent.Page{Limit: agent.MaxPage}, func(_ string, _ int64, data []byte) error {
		var d policyDoc
		if err := json.Unmarshal(data, &d); err != nil {
			return agent.Wrap(agent.Internal, err, "a former policy cannot be read")
		}
		if d.Revision < now.Revision { // one above is of a change that was not made in the end
			all = append(all, policyRevision{Revision: d.Revision, By: d.By, Created: d.Created, Bytes: len(d.Text)})
		}
		return nil
	})
	if err != nil {
		return list[policyRevision]{}, err
	}
	if rev != 0 {
		all = append(all, policyRevision{Revision: now.Revision, By: now.By, Created: now.Created, Bytes: len(now.Text), Current: true})
	}
	out := list[policyRevision]{Items: []policyRevision{}}
	for _, r := range slices.Backward(all) {
		if after != 0 && r.Revision >= after {
			continue
		}
		if len(out.Items) == limit {
			out.Next = strconv.Itoa(out.Items[limit-1].Revision)
			break
		}
		out.Items = append(out.Items, r)
	}
	return out, nil
}
