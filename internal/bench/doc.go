// Bench measures Skep against its peers or its limit, both in the same run, and prints one row for each figure:
//
//	go run ./internal/bench [--only P1,P7] [--quick] [--json FILE]
//
// The peer is workerd with its dynamic worker loader, installed from npm below peer when node is there; without it those
// rows have our side alone. Two more are guides: Node's vm module, and wasmtime where a C compiler can build it. The limit,
// in rows that are made in process, is bare wazero, or a bare copy-on-write prototype (package bare). How figures are made,
// and what they say, is in docs/design/performance.md.
//
// The exit status says only whether the figures could be made, never whether they are good.
package main
