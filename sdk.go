package skep

import "embed"

// SDK holds the sources that skep new writes into a project, so that it builds without a network: the Go SDK with package
// abi, and the TypeScript declarations.
//
//go:embed abi/*.go sdk/go/*.go sdk/js/*.d.ts
var SDK embed.FS

// Demo is the agent that skep demo runs.
//
//go:embed examples/planner/main.ts
var Demo []byte
