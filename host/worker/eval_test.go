//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// codeMode is a script that calls tools while its module loads, one after the other and at once, and has time and chance in what it asks.
const codeMode = `
	const first = await tools.fs.list({ at: Date.now() });
	let n = 0;
	export default async (input: { dir: string }) => {
		n++;
		const all = await Promise.all(first.map((name: string) => tools.fs.read({ path: input.dir + name, id: Math.random() })));
		try {
			await tools.fs.write({ path: input.dir + "sum", id: crypto.randomUUID() });
		} catch (e) {
			return { n, all, kind: e.kind, tool: e.tool, message: e.message, now: Date.now() };
		}
	};`

func toolAnswer(id uint64, v string) host.Delivery {
	out, _ := json.Marshal(abi.ToolResult{Value: abi.Raw(v)})
	return host.Delivery{ID: id, Name: abi.CallTool, Out: out}
}

// TestEvalSuspendAndResume runs code of which nothing is kept as a durable run does: it is suspended at each answer and goes on in another
// host, from its snapshot and, once more, from nothing but its journal.
func TestEvalSuspendAndResume(t *testing.T) {
	journal := []host.Delivery{
		toolAnswer(1, `["a","b","c"]`), toolAnswer(4, `"C"`), toolAnswer(2, `"A"`), toolAnswer(3, `"B"`),
		{ID: 5, Name: abi.CallTool, Err: &agent.Error{Kind: agent.Denied, Msg: "Ada says no"}},
	}
	const want = `{"n":1,"all":["A","B","C"],"kind":"denied","tool":"fs.write","message":"Ada says no","now":1005000}`
	both(t, agent.Limits{}, func(t *testing.T, h cells, _ *shelf) {
		never := func(ctx context.Context, _ string, _ []byte) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }
		// life runs what is left of it in one life: a clock that moves with what is delivered, and randomness that goes on where it was.
		life := func(resume []byte, clock time.Time, used []byte, deliver ...host.Delivery) (host.Result, time.Time, []byte, []string) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			random := &counted{r: rand.NewChaCha8([32]byte{3})}
			_, _ = random.r.Read(make([]byte, len(used)))
			var delivered []string
			res, err := h.Eval(ctx, script(codeMode), host.Call{
				Tenant: "t", Input: agent.JSON([]byte(`{"dir":"d/"}`)), Calls: never, Now: func() time.Time { return clock }, Random: random,
				Waiting: &host.Waiting{
					Resume: resume, Deliver: deliver, Rest: func(context.Context, host.Pending) bool { return true },
					Delivered: func(d host.Delivery) {
						clock = clock.Add(time.Second)
						delivered = append(delivered, fmt.Sprint(d.ID))
					},
				},
			})
			if err != nil {
				t.Fatalf("%v\n%s", err, agent.AsError(err).Stack)
			}
			return res, clock, append(used, make([]byte, random.n)...), delivered
		}
		asked := func(p host.Pending) (list []string) {
			for _, c := range p.Calls {
				list = append(list, fmt.Sprintf("%d %s %s", c.ID, c.Name, c.Input))
			}
			return list
		}
		began := time.UnixMilli(1_000_000)
		res, clock, used, _ := life(nil, began, nil)
		for i := range journal {
			if res.Suspended == nil {
				t.Fatalf("it ended after %d answers: %s", i, res.Output.Body)
			}
			played, _, _, delivered := life(nil, began, nil, journal[:i]...)
			if played.Suspended == nil || len(delivered) != i {
				t.Fatalf("played up to %d: %+v", i, played)
			}
			if d := cmp.Diff(asked(res.Suspended.Pending), asked(played.Suspended.Pending)); d != "" {
				t.Errorf("after %d answers a life and its journal wait for different things: %s", i, d)
			}
			if i == 1 {
				if list := asked(res.Suspended.Pending); len(list) != 3 || !strings.HasPrefix(list[2], `4 tool.call {"tool":"fs.read","args":{"path":"d/c","id":0.`) {
					t.Errorf("waits for %q", list)
				}
			}
			res, clock, used, _ = life(res.Suspended.Snapshot, clock, used, journal[i])
		}
		if res.Suspended != nil || string(res.Output.Body) != want {
			t.Errorf("in lives: %s", res.Output.Body)
		}
		played, _, _, _ := life(nil, began, nil, journal...)
		if played.Suspended != nil || string(played.Output.Body) != want {
			t.Errorf("played: %s", played.Output.Body)
		}
		if res.Usage.Fuel <= 0 || played.Usage.Fuel <= 0 {
			t.Error("no usage")
		}

		// Other code under the same journal is told apart.
		var differs []string
		other := strings.Replace(codeMode, "input.dir + name", `"x" + name`, 1)
		sum := (&host.PendingCall{Name: abi.CallTool, Input: []byte("another")}).Sum()
		deliver := []host.Delivery{journal[0], journal[1]}
		deliver[1].Sum = sum
		_, err := h.Eval(t.Context(), script(other), host.Call{
			Tenant: "t", Input: agent.JSON([]byte(`{"dir":"d/"}`)), Calls: never,
			Waiting: &host.Waiting{Deliver: deliver, Diverged: func(d host.Delivery, p host.Pending) { differs = append(differs, fmt.Sprint(d.ID, len(p.Calls))) }},
		})
		if agent.KindOf(err) != agent.Conflict || len(differs) != 1 || differs[0] != "4 3" {
			t.Errorf("%v, %q", err, differs)
		}
	})
}

// TestEvalCarriesItsImage: a snapshot carries its image on when it is asked to, also that of code of which nothing is kept.
func TestEvalCarriesItsImage(t *testing.T) {
	both(t, agent.Limits{}, func(t *testing.T, h cells, _ *shelf) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := host.Call{
			Tenant: "t", Calls: func(ctx context.Context, _ string, _ []byte) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() },
			Waiting: &host.Waiting{Export: true, Rest: func(context.Context, host.Pending) bool { return true }},
		}
		src := script(`export default async () => await tools.a.b({})`)
		res, err := h.Eval(ctx, src, c)
		if err != nil || res.Suspended == nil || len(res.Suspended.Exported) == 0 || res.Suspended.Image == "" {
			t.Fatalf("%+v, %v", res.Suspended, err)
		}
		c.Waiting = &host.Waiting{Resume: res.Suspended.Snapshot, Image: res.Suspended.Exported, Deliver: []host.Delivery{toolAnswer(1, "42")}}
		if res, err = h.Eval(ctx, src, c); err != nil || string(res.Output.Body) != "42" {
			t.Errorf("%s, %v", res.Output.Body, err)
		}
	})
}

// TestEvalNamesWhatIsUnderWay names the calls that were under way when its time was up, also from another process.
func TestEvalNamesWhatIsUnderWay(t *testing.T) {
	both(t, agent.Limits{}, func(t *testing.T, h cells, _ *shelf) {
		_, err := h.Eval(t.Context(), script("export default async () => {\n\tawait tools.fs.read({});\n}"), host.Call{
			Tenant: "t", Limits: agent.Limits{Wall: 100 * time.Millisecond},
			Calls: func(ctx context.Context, _ string, _ []byte) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() },
		})
		if e := agent.AsError(err); e == nil || e.Limit != agent.LimitWall || !strings.HasSuffix(e.Msg, "; under way: tools.fs.read at agent.ts:2") {
			t.Error(err)
		}
	})
}

// counted counts what is drawn.
type counted struct {
	r *rand.ChaCha8
	n int
}

func (c *counted) Read(b []byte) (int, error) {
	c.n += len(b)
	return c.r.Read(b)
}
