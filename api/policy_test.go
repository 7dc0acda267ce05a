package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

func TestPolicy(t *testing.T) {
	r := start(t, nil)
	_, owner := r.as(agent.Owner, "")
	bearer := []string{"Authorization", "Bearer " + owner.Secret}
	set := func(body string, headers ...string) answer {
		return answer{t, r.do("PUT", "/v1/policy", body, headers...)}
	}

	got := answer{t, r.do("GET", "/v1/policy", "", bearer...)}.policy()
	if got.Revision != 0 || !strings.Contains(got.Text, "modify: ask") {
		t.Errorf("the default is %+v", got)
	}
	for i := 1; i <= keptPolicies+3; i++ {
		doc := set(fmt.Sprintf(`{"text":"read: allow\nrules:\n  - deny a.b%d\n","revision":%d}`, i, i-1), bearer...).policy()
		if doc.Revision != i || doc.By != owner.ID || doc.Created.IsZero() {
			t.Fatalf("revision %d is %+v", i, doc)
		}
	}
	set(`{"text":"read: allow\n","revision":3}`, bearer...).refused(http.StatusConflict, "is at revision 23, and not 3")
	set(`{"text":"rules:\n  - alow a.b\n"}`, bearer...).refused(http.StatusBadRequest, "policy:2:5: a rule begins with")
	set(`{"text":"tests:\n  deny: [a.b]\n"}`, bearer...).refused(http.StatusBadRequest, "policy:2: a.b is ask, and should be deny")

	var seen []int
	for after := ""; ; {
		var page struct {
			Items []policyRevision
			Next  string
		}
		res := r.do("GET", "/v1/policy/history?limit=8&after="+after, "", bearer...)
		if err := json.Unmarshal(res.body, &page); err != nil || len(page.Items) > 8 {
			t.Fatalf("%s %v", res.body, err)
		}
		for _, i := range page.Items {
			seen = append(seen, i.Revision)
			if i.Current != (i.Revision == keptPolicies+3) {
				t.Errorf("%+v", i)
			}
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if len(seen) != keptPolicies+1 || seen[0] != keptPolicies+3 || seen[len(seen)-1] != 3 {
		t.Errorf("the history is %v", seen)
	}
	if old := (answer{t, r.do("GET", "/v1/policy?revision=7", "", bearer...)}).policy(); old.Revision != 7 || !strings.Contains(old.Text, "a.b7\n") {
		t.Errorf("revision 7 is %+v", old)
	}
	answer{t, r.do("GET", "/v1/policy?revision=1", "", bearer...)}.refused(http.StatusNotFound, "is not kept")

	_, bound := r.as(agent.Owner, "default")
	hook := `{"text":"hooks:\n  - before a.*: command [\"/bin/true\"]\n"}`
	set(hook, "Authorization", "Bearer "+bound.Secret).refused(http.StatusForbidden, "only a token for the whole server can set one")
	if doc := set(hook, bearer...).policy(); doc.Revision != keptPolicies+4 {
		t.Errorf("%+v", doc)
	}

	res := r.do("POST", "/v1/policy/explain", `{"tool":"shell.run","args":{"command":"ls; rm x"},"text":"rules:\n  - allow shell.run(ls *)\n  - deny shell.run(rm *)\n"}`, bearer...)
	var out policyExplained
	if err := json.Unmarshal(res.body, &out); err != nil || out.Decision.Verdict != agent.Deny || len(out.Steps) != 2 || len(out.Parts) != 2 {
		t.Errorf("%s %v", res.body, err)
	}
}

// answer is a response that is looked at.
type answer struct {
	t   *testing.T
	res reply
}

func (a answer) policy() (doc policyDoc) {
	a.t.Helper()
	if err := json.Unmarshal(a.res.body, &doc); err != nil || a.res.StatusCode != http.StatusOK {
		a.t.Fatalf("%s %s", a.res.Status, a.res.body)
	}
	return doc
}

func (a answer) refused(status int, why string) {
	a.t.Helper()
	if a.res.StatusCode != status || !strings.Contains(string(a.res.body), why) {
		a.t.Errorf("%s %s; want %d, %q", a.res.Status, a.res.body, status, why)
	}
}
