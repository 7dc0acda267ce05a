package skep

import "embed"

// SDK holds the sources that skep new writes into a project, so that it builds without a network: the Go SDK with package
// abi, the Rust crate, the C header, the AssemblyScript modules, and what editors need for TypeScript and Python.
//
//go:embed abi/*.go sdk/go/*.go sdk/js/*.d.ts sdk/rust/Cargo.toml sdk/rust/src sdk/c/skep.h sdk/as/*.ts sdk/python/skep.pyi
var SDK embed.FS

// Demo is the agent that skep demo runs.
//
//go:embed examples/planner/main.ts
var Demo []byte
