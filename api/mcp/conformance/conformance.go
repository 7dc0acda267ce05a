// Package conformance holds no code: its tests run the conformance suite of MCP (@modelcontextprotocol/conformance) against Skep. npm ci in this
// folder installs the suite, and the Node that it needs.
package conformance
