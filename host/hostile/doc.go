// Package hostile attacks a real host, as strangers' code would. It has tests only.
//
// Each row is one attack, named for what it attacks, with the end that it must come to: a typed error, or a harmless
// result. While it runs, and after, a neighbour on the same host is served; in the end no cell is alive, and memory, open
// files and goroutines are back where they were after warm-up.
package hostile
