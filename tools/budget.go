package tools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools/policy"
)

// Tally counts calls that the store does not: those of work that is no run, which nothing outlives, and those of a change set ahead of them.
type Tally struct {
	// Ahead is for calls that will each be judged again when they are made, as those of a change set are: nothing is spent, and those before them in
	// the same tally count as if they were made.
	Ahead bool

	mu   sync.Mutex
	made map[string]int
}

// take counts one more call, unless there are most already beside those made elsewhere.
func (t *Tally) take(key string, most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.made[key] >= most {
		return false
	}
	if t.made == nil {
		t.made = map[string]int{}
	}
	t.made[key]++
	return true
}

func (t *Tally) back(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.made[key]--
}

// spent is the document of one budget's calls: of a run, or of slices of time, of which a while has slices and the one that is under way.
type spent struct {
	Key    string        `json:"key"`
	Per    time.Duration `json:"per,omitempty"`    // nanoseconds; 0 for a run
	Calls  int           `json:"calls,omitempty"`  // of a run
	Slices map[int64]int `json:"slices,omitempty"` // calls by the number of the slice
}

// slices is into how many parts a while is cut: so much of it later is there room again than there could be.
const sliceCount = 60

func slice(per time.Duration) int64 { return max(int64(per)/sliceCount, 1) }

// trim drops what is over, and returns how many calls count. None within any while as long as Per is forgotten.
func (s *spent) trim(at time.Time) (n int) {
	if s.Per == 0 {
		return s.Calls
	}
	first := at.UnixNano()/slice(s.Per) - sliceCount
	for i, c := range s.Slices {
		if i < first {
			delete(s.Slices, i)
			continue
		}
		n += c
	}
	return n
}

// room tells how long it is until less than most calls count; 0 where that cannot be.
func (s *spent) room(at time.Time, most int) time.Duration {
	n := s.trim(at)
	for _, i := range slices.Sorted(maps.Keys(s.Slices)) {
		if n -= s.Slices[i]; n < most {
			return time.Unix(0, (i+sliceCount+1)*slice(s.Per)).Sub(at)
		}
	}
	return 0
}

func (s *spent) add(at time.Time, n int) {
	if s.Per == 0 {
		s.Calls = max(s.Calls+n, 0)
		return
	}
	if s.Slices == nil {
		s.Slices = map[int64]int{}
	}
	i := at.UnixNano() / slice(s.Per)
	if s.Slices[i] += n; s.Slices[i] <= 0 {
		delete(s.Slices, i)
	}
}

// budgetDoc names the document of a budget, of a run or of the app.
func budgetDoc(b policy.Budget, run agent.RunID) string {
	sum := sha256.Sum256([]byte(b.Key))
	name := hex.EncodeToString(sum[:16])
	if b.Per == 0 {
		return "run/" + string(run) + "/" + name
	}
	return "while/" + name
}

// locks keep calls of this process from writing the same document at once, which one of them would have to do again.
type locks struct {
	seed maphash.Seed
	mu   [64]sync.Mutex
}

func (l *locks) of(name string) *sync.Mutex {
	return &l.mu[maphash.String(l.seed, name)%uint64(len(l.mu))]
}

// spend counts a call for its budgets. Those beyond which it is are returned, with how long it is until there is room: for these it is not counted. Where one of
// them denies, it is counted for none.
func (c *Catalogue) spend(ctx context.Context, budgets []policy.Budget, call agent.ToolCall, t *Tally) (over []policy.Budget, again time.Duration, err error) {
	var counted []policy.Budget
	var at []time.Time
	deny := false
	for _, b := range budgets {
		took, wait, when, err := c.take(ctx, b, call, t)
		if err != nil {
			c.giveBack(ctx, counted, at, call, t)
			return nil, 0, err
		}
		if took {
			counted, at = append(counted, b), append(at, when)
			continue
		}
		over, again, deny = append(over, b), max(again, wait), deny || b.Then == agent.Deny
	}
	if deny {
		c.giveBack(ctx, counted, at, call, t)
	}
	return over, again, nil
}

// take counts a call for one budget, when there is room.
func (c *Catalogue) take(ctx context.Context, b policy.Budget, call agent.ToolCall, t *Tally) (took bool, wait time.Duration, at time.Time, err error) {
	if b.Per == 0 && call.Run == "" {
		return t.take(b.Key, b.Limit), 0, at, nil
	}
	name := budgetDoc(b, call.Run)
	lock := c.spending.of(string(call.App) + "/" + name)
	lock.Lock()
	defer lock.Unlock()
	for {
		doc, rev, err := c.spentOf(ctx, call.App, b, name)
		if err != nil {
			return false, 0, at, err
		}
		at = now()
		n := doc.trim(at)
		if t.Ahead {
			return t.take(b.Key, b.Limit-n), doc.room(at, b.Limit), at, nil
		}
		if n >= b.Limit {
			return false, doc.room(at, b.Limit), at, nil
		}
		if rev == 0 {
			if err := c.tidy(ctx, call); err != nil {
				return false, 0, at, err
			}
		}
		doc.add(at, 1)
		_, err = c.store.PutDoc(ctx, store.Budgets, call.App, name, rev, doc)
		if contended(ctx, err) {
			continue // another process has counted
		}
		return err == nil, 0, at, err
	}
}

func contended(ctx context.Context, err error) bool {
	k := agent.KindOf(err)
	return err != nil && ctx.Err() == nil && (k == agent.Conflict || k == agent.Exists || k == agent.NotFound)
}

func (c *Catalogue) spentOf(ctx context.Context, app agent.App, b policy.Budget, name string) (doc spent, rev int64, err error) {
	rev, err = c.store.Doc(ctx, store.Budgets, app, name, &doc)
	if agent.KindOf(err) == agent.NotFound && err != nil {
		if _, err := c.store.App(ctx, app); err != nil {
			return doc, 0, err
		}
		rev, err = 0, nil
	}
	doc.Key, doc.Per = b.Key, b.Per
	return doc, rev, err
}

// giveBack takes calls back that were counted and are not made. What fails here leaves a call counted too many, never one too few.
func (c *Catalogue) giveBack(ctx context.Context, counted []policy.Budget, at []time.Time, call agent.ToolCall, t *Tally) {
	for i, b := range counted {
		if t.Ahead || b.Per == 0 && call.Run == "" {
			t.back(b.Key)
			continue
		}
		if err := c.untake(ctx, b, call, at[i]); err != nil {
			c.opts.Log.WarnContext(ctx, "tools: a call that is not made stays counted for a budget", "app", call.App, "budget", b.Text, "error", err)
		}
	}
}

func (c *Catalogue) untake(ctx context.Context, b policy.Budget, call agent.ToolCall, at time.Time) error {
	name := budgetDoc(b, call.Run)
	lock := c.spending.of(string(call.App) + "/" + name)
	lock.Lock()
	defer lock.Unlock()
	for {
		doc, rev, err := c.spentOf(ctx, call.App, b, name)
		if err != nil || rev == 0 {
			return err
		}
		doc.add(at, -1)
		if _, err = c.store.PutDoc(ctx, store.Budgets, call.App, name, rev, doc); !contended(ctx, err) {
			return err
		}
	}
}

// tidied is how many documents are looked at whenever there comes to be one.
const tidied = 16

// rounds remember where tidying goes on, so that documents that still count do not hide those behind them.
type rounds struct {
	mu sync.Mutex
	at map[round]string // the cursor of the next page; none for the first
}

// round is a way through the documents of an app whose names begin alike.
type round struct {
	app    agent.App
	prefix string
}

func (r *rounds) of(at round) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at[at]
}

func (r *rounds) set(at round, next string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if next == "" {
		delete(r.at, at)
		return
	}
	if r.at == nil {
		r.at = map[round]string{}
	}
	r.at[at] = next
}

func (r *rounds) forget(app agent.App) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.at, func(at round, _ string) bool { return at.app == app })
}

// tidy looks at the next few documents and deletes those that count for nothing any more: of runs that have ended, and of budgets that nobody has used for
// as long as they last.
func (c *Catalogue) tidy(ctx context.Context, call agent.ToolCall) error {
	gone := map[string]int64{}
	for _, prefix := range []string{"run/", "while/"} {
		var names []string
		var docs []spent
		var revs []int64
		at := round{call.App, prefix}
		next, err := c.store.Docs(ctx, store.Budgets, call.App, prefix, agent.Page{After: c.tidying.of(at), Limit: tidied}, func(name string, rev int64, data []byte) error {
			var doc spent
			if err := json.Unmarshal(data, &doc); err != nil {
				return agent.Wrap(agent.Internal, err, "what was spent of a budget cannot be read")
			}
			names, docs, revs = append(names, name), append(docs, doc), append(revs, rev)
			return nil
		})
		if err != nil {
			return err
		}
		c.tidying.set(at, next)
		for i, name := range names {
			over := docs[i].Per > 0 && docs[i].trim(now()) == 0
			if docs[i].Per == 0 {
				id, _, _ := strings.Cut(strings.TrimPrefix(name, "run/"), "/")
				run, err := c.store.Run(ctx, call.App, agent.RunID(id))
				if err != nil && agent.KindOf(err) != agent.NotFound {
					return err
				}
				over = agent.RunID(id) != call.Run && (err != nil || run.Status.Terminal())
			}
			if over {
				gone[name] = revs[i]
			}
		}
	}
	for name, rev := range gone {
		if err := c.store.DeleteDoc(ctx, store.Budgets, call.App, name, rev); err != nil && !contended(ctx, err) {
			return err
		}
	}
	return nil
}

// Spent is a budget that a call counts for, and how much of it is spent.
type Spent struct {
	Budget string        `json:"budget"`
	From   string        `json:"from"` // where it stands: "policy:12"
	Limit  int           `json:"limit"`
	Then   agent.Verdict `json:"then"`            // of calls beyond it
	Calls  *int          `json:"calls,omitempty"` // that count now; nil for a budget of runs
}

// Spent tells of the budgets of a policy that a call would count for. It counts nothing.
func (c *Catalogue) Spent(ctx context.Context, app agent.App, p *policy.Policy, call policy.Call) ([]Spent, error) {
	var out []Spent
	for _, b := range p.Budgets(call) {
		one := Spent{Budget: b.Text, From: b.From, Limit: b.Limit, Then: b.Then}
		if b.Per > 0 {
			doc, _, err := c.spentOf(ctx, app, b, budgetDoc(b, ""))
			if err != nil {
				return nil, err
			}
			n := doc.trim(now())
			one.Calls = &n
		}
		out = append(out, one)
	}
	return out, nil
}
