//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// program is a text that is new each time: its serial number stands where %d is, and in its result.
type program struct {
	name     string
	language string // of ours; the peer's loader takes JavaScript only
	ours     string // a module whose default export is a function
	theirs   string // the same as a fetch handler
	bare     string // the same as a script, whose value is the result
}

const (
	// work is about a kilobyte of what agents do: classes, promises, iteration, text. The marks around types are cut out
	// to make JavaScript of it.
	work = `
«interface Order { id: number; customer: string; amount: number; tags?: string[] }
»const orders«: Order[]» = Array.from({ length: 50 }, (_, i) => ({
	id: i, customer: ["ada", "bob", "cy"][i %% 3], amount: i * 7.25, tags: i %% 2 ? ["new"] : undefined,
}));
class Totals {
	#by = new Map«<string, number>»();
	add(o«: Order») { this.#by.set(o.customer, (this.#by.get(o.customer) ?? 0) + o.amount); return this }
	get all()«: Record<string, number>» { return Object.fromEntries(this.#by) }
}
async function load(id«: number»)«: Promise<Order>» { await null; return orders[id] }
async function main(limit«: number») {
	const picked = await Promise.all(orders.slice(0, limit).map((o) => load(o.id)));
	const totals = new Totals();
	for (const o of picked) totals.add(o);
	const text = picked.filter((o) => o.tags?.includes("new")).map((o) => o.customer.toUpperCase()).join("-");
	return { n: "ok:%d", totals: totals.all, text: text.replace(/ADA-(\w+)/g, "$1"), url: new URL("/x?y=1", "https://example.com").href };
}
`
	ourMain   = work + `export default () => main(20);`
	bareMain  = work + `main(20)`
	theirMain = work + `export default { async fetch() { return Response.json(await main(20)) } };`
)

// plainJS cuts the types out of a text, typed leaves them in.
func plainJS(s string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(s, "«") {
		if _, after, ok := strings.Cut(part, "»"); ok {
			part = after
		}
		b.WriteString(part)
	}
	return b.String()
}

func typed(s string) string { return strings.NewReplacer("«", "", "»", "").Replace(s) }

func programs() []program {
	return []program{
		{
			"a line of JS", "js", `export default function () { return "ok:%d" }`,
			`export default { fetch() { return new Response("ok:%d") } }`,
			`(function () { return "ok:%d" })()`,
		},
		{"1 kB of JS", "js", plainJS(ourMain), plainJS(theirMain), plainJS(bareMain)},
		{"1 kB of TS", "ts", typed(ourMain), plainJS(theirMain), plainJS(bareMain)},
	}
}

// newText is figure P1: text that was never seen before, to its first result.
func newText(ctx context.Context, b *bench) ([]Figure, error) {
	skep, err := b.ourServer(ctx)
	if err != nil {
		return nil, err
	}
	peer, err := b.peerServer(ctx)
	if err != nil {
		return nil, err
	}
	node, err := b.nodeServer(ctx)
	if err != nil {
		return nil, err
	}
	var fs []Figure
	serial := 0
	for _, p := range programs() {
		ours := &side{server: skep, next: func() ask {
			serial++
			body, err := json.Marshal(map[string]string{"code": fmt.Sprintf(p.ours, serial), "language": p.language})
			if err != nil {
				panic(err) // strings always marshal
			}
			return ask{"/v1/code", "application/json", body, fmt.Sprintf("ok:%d", serial)}
		}}
		theirs := &side{server: peer, next: func() ask {
			serial++
			return ask{"/load", "text/javascript", fmt.Appendf(nil, p.theirs, serial), fmt.Sprintf("ok:%d", serial)}
		}}
		inNode := &side{server: node, next: func() ask {
			serial++
			return ask{"/load", "text/javascript", fmt.Appendf(nil, p.bare, serial), fmt.Sprintf("ok:%d", serial)}
		}}
		plan := plan{rounds: b.count(6, 2), sequential: b.count(50, 20), callers: 8, many: b.count(80, 40)}
		if err := duel(ctx, plan, ours, theirs, inNode); err != nil {
			return nil, err
		}
		peerName, asJS := "workerd", ""
		if p.language != "js" {
			asJS = ", as JS"
			peerName += asJS
		}
		fs = append(fs, duelFigures("P1", "new text, "+p.name, peerName, ours, theirs,
			Target{Bound: 1}, Target{Bound: 2, AtLeast: true})...)
		fs = append(fs, nodeFigures("P1", "new text, "+p.name, nodeName+asJS, ours, inNode)...)
	}
	return fs, nil
}

// storedImage is figure P2: a stored agent in a fresh cell for each call, against a worker that stays warm and is shared.
func storedImage(ctx context.Context, b *bench) ([]Figure, error) {
	skep, err := b.ourServer(ctx)
	if err != nil {
		return nil, err
	}
	peer, err := b.peerServer(ctx)
	if err != nil {
		return nil, err
	}
	node, err := b.nodeServer(ctx)
	if err != nil {
		return nil, err
	}
	apart, err := b.apartServer(ctx)
	if err != nil {
		return nil, err
	}
	inNode := &side{server: node, next: func() ask { return greeting("/warm") }}
	ours := &side{server: skep, next: func() ask { return greeting("/v1/agents/bench/call/greet") }}
	inWorker := &side{server: apart, next: ours.next}
	theirs := &side{server: peer, next: func() ask { return greeting("/warm") }}
	plan := plan{rounds: b.count(10, 2), sequential: b.count(400, 200), callers: 8, many: b.count(2000, 1000)}
	if err := duel(ctx, plan, ours, inWorker, theirs, inNode); err != nil {
		return nil, err
	}
	fs := duelFigures("P2", "stored image", "workerd", ours, theirs, Target{Bound: 1}, Target{Bound: 1, AtLeast: true})
	for _, f := range duelFigures("P2", "stored image, in a worker process", "workerd", inWorker, theirs, Target{Bound: 1}, Target{Bound: 1, AtLeast: true}) {
		f.Note = "" // the CPU that is counted is not the worker's
		fs = append(fs, f)
	}
	return append(fs, nodeFigures("P2", "stored image", nodeName+", warm and shared", ours, inNode)...), nil
}

func greeting(path string) ask {
	return ask{path, "application/json", []byte(`{"name":"bee"}`), `{"hi":"bee"}`}
}

// duelFigures are the rows of a duel: latency of one caller and rate with eight.
func duelFigures(id, name, peer string, ours, theirs *side, latency, rate Target) []Figure {
	p50 := compare(id, name+", p50", Seconds, ours.p50, theirs.p50, peer, latency)
	p50.Note = ours.costs("ours") + "; " + theirs.costs(peer)
	p99 := compare(id, name+", p99", Seconds, []float64{percentile(ours.all, 99)}, []float64{percentile(theirs.all, 99)}, peer, latency)
	return []Figure{p50, p99, compare(id, name+", rate with 8 callers", PerSecond, ours.rate, theirs.rate, peer, rate)}
}
