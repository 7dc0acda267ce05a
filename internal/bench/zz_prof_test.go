//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
)

func TestZZ(t *testing.T) {
	ctx := context.Background()
	for name, code := range map[string]string{
		"class":  `import { Agent } from "skep"; export default class C extends Agent { nop() { return 1 } async nopa() { return 1 } async get() { return await this.storage.get("n") } async set() { await this.storage.set("n", 1); return 1 } async add() { const n = ((await this.storage.get("n")) ?? 0) + 1; await this.storage.set("n", n); return { n } } }`,
		"export": `import { storage } from "skep"; export function nop() { return 1 } export async function nopa() { return 1 } export async function get() { return await storage.get("n") } export async function set() { await storage.set("n", 1); return 1 } export async function add() { const n = ((await storage.get("n")) ?? 0) + 1; await storage.set("n", n); return { n } }`,
	} {
		bb, err := newBench(ctx, true, os.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		p, err := bb.inProcess(ctx, t.TempDir(), code)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []string{"nop", "nopa", "get", "set", "add"} {
			for r := range 2 {
				var fuel, cpu int64
				_, c, err := together(8, 1000, func(i int) error {
					res, err := p.CallInstance(ctx, agent.DefaultApp, runtime.InstanceCall{Agent: counterName, Key: fmt.Sprint("k", i%100), Function: m, Input: agent.JSON([]byte("null"))})
					fuel, cpu = int64(res.Usage.Fuel), int64(res.Usage.CPU)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				if r == 1 {
					t.Logf("%s %s: CPU %.0f us, fuel %d, cell cpu %d us", name, m, c*1e6, fuel, cpu/1000)
				}
			}
		}
		_, c, err := together(8, 1000, func(i int) error {
			_, err := p.Call(ctx, agent.DefaultApp, runtime.CallRequest{Agent: counterName, Function: "nop", Input: agent.JSON([]byte("null"))})
			return err
		})
		t.Logf("%s stateless nop: CPU %.0f us %v", name, c*1e6, err)
		_ = p.close()
		bb.close()
	}
}
