package limit

import (
	"cmp"
	"context"
	"slices"

	"github.com/skep-dev/skep/agent"
)

// Use returns what is used of a limit now, by those who have used any of it, the most frequent first: of an app's own limits, and of Org those of all apps
// together. It is NotFound when there is no such limit.
func (l *Limiter) Use(ctx context.Context, app agent.App, name string) ([]agent.LimitUse, error) {
	c, now, err := l.lock(ctx, app)
	if err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	at := slices.IndexFunc(c.rules, func(r *rule) bool { return r.Name == name })
	if at < 0 {
		return nil, agent.Errorf(agent.NotFound, "there is no limit %.80q", name)
	}
	r := c.rules[at]
	list := []agent.LimitUse{}
	for who, of := range r.whose {
		if u := r.used(of, now); u != (amount{}) {
			list = append(list, agent.LimitUse{Who: who, Requests: u.requests, Tokens: u.tokens, Spend: u.micro})
		}
	}
	slices.SortFunc(list, func(a, b agent.LimitUse) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Who, b.Who))
	})
	return list, nil
}
