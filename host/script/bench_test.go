package script

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/host/grant/http"
)

// BenchmarkCall is a trivial call in a fresh cell of an image.
func BenchmarkCall(b *testing.B) {
	a := load(b, source(`export function f(x) { return x + 1 }`))
	call := Call{Function: "f", Input: agent.JSON([]byte("1"))}
	b.ReportAllocs()
	for b.Loop() {
		result(b, a, call)
	}
}

// evalText is about 1 KB of TypeScript, with a place for a number that makes it new.
const evalText = `interface Order { id: number; customer: string; amount: number; tags?: string[] }
const orders: Order[] = Array.from({ length: 50 }, (_, i) => ({ id: i, customer: ["ada", "bob", "cy"][i %% 3], amount: i * 7.25, tags: i %% 2 ? ["new"] : undefined }));
class Totals {
	#by = new Map<string, number>();
	add(o: Order): this { this.#by.set(o.customer, (this.#by.get(o.customer) ?? 0) + o.amount); return this }
	get all(): Record<string, number> { return Object.fromEntries(this.#by) }
}
async function load(id: number): Promise<Order> { await null; return orders[id] }
export default async function (input: { limit: number }) {
	const picked = await Promise.all(orders.slice(0, input.limit).map((o) => load(o.id)));
	const totals = new Totals();
	for (const o of picked) totals.add(o);
	const text = picked.filter((o) => o.tags?.includes("new")).map((o) => o.customer.toUpperCase()).join("-");
	return { n: %d, totals: totals.all, text: text.replace(/ADA-(\w+)/g, "$1"), url: new URL("/x?y=1", "https://example.com").href };
}`

// BenchmarkEval is new text to its first result.
func BenchmarkEval(b *testing.B) {
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		out, _, err := engine.Eval(b.Context(), source(fmt.Sprintf(evalText, i)), Call{Input: agent.JSON([]byte(`{"limit":20}`))})
		if err != nil {
			b.Fatal(err)
		}
		if len(out.Body) < 50 {
			b.Fatalf("got %s", out.Body)
		}
	}
}

// BenchmarkLoad is new text to an image of its own.
func BenchmarkLoad(b *testing.B) {
	for i := 0; b.Loop(); i++ {
		a, err := engine.Load(b.Context(), source(fmt.Sprintf(`export function f(x) { return x + %d }`, i)), nil)
		if err != nil {
			b.Fatal(err)
		}
		_ = a.Close()
	}
}

// BenchmarkHostCalls is one call to the host and back, of many that a script awaits one after the other, or at once.
func BenchmarkHostCalls(b *testing.B) {
	a := load(b, source(`
		import { callAgent, emit } from "skep";
		export const sequential = async (n) => { for (let i = 0; i < n; i++) await callAgent("x", "f", i) };
		export const parallel = async (n) => { await Promise.all(Array.from({ length: n }, (_, i) => callAgent("x", "f", i))) };
		export const emitted = (n) => { for (let i = 0; i < n; i++) emit("x", i) };`))
	const n = 1000
	answer := []byte(`{"type":"application/json","output":"MQ=="}`)
	calls := func(context.Context, string, []byte) ([]byte, error) { return answer, nil }
	for _, fn := range a.Exports() {
		b.Run(fn, func(b *testing.B) {
			for b.Loop() {
				result(b, a, Call{Function: fn, Input: agent.JSON([]byte(fmt.Sprint(n))), Calls: calls})
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/n, "µs/call")
		})
	}
}

// BenchmarkFetch is a request of a short JSON document, of many that a script awaits one after the other, with the table of
// exchanges and without a network.
func BenchmarkFetch(b *testing.B) {
	a := load(b, source(`
		export const json = async (n) => { for (let i = 0; i < n; i++) await (await fetch("https://a.test/x")).json() };
		export const parallel = async (n) => { await Promise.all(Array.from({ length: n }, async () => (await fetch("https://a.test/x")).json())) };`))
	const n = 50
	for _, fn := range a.Exports() {
		b.Run(fn, func(b *testing.B) {
			for b.Loop() {
				table := http.New(func() http.Client { return canned{} }, nil)
				result(b, a, Call{Function: fn, Input: js(fmt.Sprint(n)), Calls: grant.NewDoor(agent.DefaultLimits(), table.Handlers(), nil).Call})
				table.Close()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/n, "µs/request")
		})
	}
}

// canned answers every request at once.
type canned struct{}

func (canned) Still(context.Context) error { return nil }
func (canned) Do(context.Context, *egress.Request) (*egress.Response, error) {
	return &egress.Response{
		Status: 200, URL: "https://a.test/x", Header: [][2]string{{"content-type", "application/json"}}, Body: io.NopCloser(strings.NewReader(`{"n":1}`)),
	}, nil
}
