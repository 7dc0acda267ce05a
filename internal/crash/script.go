package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// script is a script of code mode, and what is known of its run.
type script struct {
	name  string
	text  string
	stops int                  // rounds, each with a line and an event
	drawn int                  // calls
	calls map[string]*toolCall // by name

	run    agent.Run       // as it was when it had ended
	failed map[string]bool // calls of which the person said that they failed
	told   map[string]bool // calls of which the person gave the answer
	again  map[string]int  // calls that the person had made again, and how often at most
}

// toolCall is a call that a script makes.
type toolCall struct {
	name   string
	tool   string // "look" or one of ledgerTools
	asked  bool   // a person is asked about it
	change string // the title of the change set that it is a part of
	denied bool   // by that person, or by the policy
	gives  bool   // when nobody knows whether it was made, and it was not, the person says that it failed; else it is made again
}

// policyText is the policy that scripts run under.
const policyText = `read: allow
modify: allow
modify_execute: ask
execute: ask
rules:
  - ask ledger.pay
  - deny ledger.put(name=*never) because nobody wants it
`

// newScript draws a script. Its rounds make calls at once, with what earlier rounds have read and with random numbers, and sleep in between: so what
// is sent again after a crash differs from what was sent before, unless the run goes on exactly where it was.
func newScript(name string, rng *rand.Rand) *script {
	s := &script{name: name, stops: 2 + rng.IntN(3), calls: map[string]*toolCall{}, failed: map[string]bool{}, told: map[string]bool{}, again: map[string]int{}}
	var b strings.Builder
	b.WriteString(`import { emit, sleep, tools } from "skep";

type Args = { name: string; seen: number; random: number; before: number; after: number };
const got: Record<string, unknown> = {};
let seen = 0;

const args = (name: string, before: number, after: number): Args => ({ name, seen, random: Math.random(), before, after });

async function made(sent: Args, call: (sent: Args) => Promise<any>) {
  try {
    got[sent.name] = { sent, back: await call(sent) };
  } catch (e: any) {
    got[sent.name] = { sent, kind: e.kind, error: e.message };
  }
}

async function changed(title: string, sent: Args[]) {
  try {
    const back: any = await tools.change(title, sent.map((args) => ({ tool: "ledger.pay", args })));
    sent.forEach((sent, i) => (got[sent.name] = { sent, back: back[i] }));
  } catch (e: any) {
    for (const one of sent) got[one.name] = { sent: one, kind: e.kind, error: e.message };
  }
}

export default async function () {
`)
	for i := range s.stops {
		fmt.Fprintf(&b, "  console.log(\"round %d\");\n  emit(\"round\", %d);\n  await Promise.all([\n", i, i)
		for range 2 + rng.IntN(5) {
			b.WriteString("    " + s.draw(rng) + ",\n")
		}
		b.WriteString("  ]);\n")
		if rng.IntN(2) == 0 {
			s.drawn++
			fmt.Fprintf(&b, "  seen = (await tools.ledger.look(args(\"%s.%d\", 0, %d))).lines;\n", name, s.drawn, rng.IntN(60))
		}
		switch d := time.Duration(rng.IntN(1500)) * time.Millisecond; rng.IntN(3) {
		case 0:
			fmt.Fprintf(&b, "  await sleep(%d);\n", d.Milliseconds()+700)
		case 1:
			fmt.Fprintf(&b, "  await new Promise((go) => setTimeout(go, %d));\n", d.Milliseconds())
		}
	}
	b.WriteString("  return got;\n}\n")
	s.text = b.String()
	return s
}

// call adds a call to the script.
func (s *script) call(tool, ending string, rng *rand.Rand) *toolCall {
	s.drawn++
	c := &toolCall{name: fmt.Sprintf("%s.%d%s", s.name, s.drawn, ending), tool: tool, gives: rng.IntN(6) == 0}
	s.calls[c.name] = c
	return c
}

// draw returns the text of a call, or of a change set.
func (s *script) draw(rng *rand.Rand) string {
	switch n := rng.IntN(20); {
	case n < 2:
		title, denied := fmt.Sprintf("change %s.%d", s.name, s.drawn+1), rng.IntN(5) == 0
		var parts []string
		for range 2 + rng.IntN(2) {
			c := s.call("pay", "", rng)
			c.change, c.asked, c.denied, c.gives = title, true, denied, false
			parts = append(parts, s.args(c, rng))
		}
		return fmt.Sprintf("changed(%q, [%s])", title, strings.Join(parts, ", "))
	case n < 3:
		c := s.call("put", "-never", rng)
		c.denied = true
		return s.made(c, rng)
	case n < 7:
		c := s.call([]string{"pay", "drop"}[n%2], "", rng)
		c.asked, c.denied = true, rng.IntN(6) == 0
		return s.made(c, rng)
	case n < 11:
		return s.made(s.call([]string{"set", "look"}[n%2], "", rng), rng)
	}
	return s.made(s.call("put", "", rng), rng)
}

func (s *script) made(c *toolCall, rng *rand.Rand) string {
	return fmt.Sprintf("made(%s, (sent) => tools.ledger.%s(sent))", s.args(c, rng), c.tool)
}

func (s *script) args(c *toolCall, rng *rand.Rand) string {
	return fmt.Sprintf("args(%q, %d, %d)", c.name, rng.IntN(120), rng.IntN(200))
}
