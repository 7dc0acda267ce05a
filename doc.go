// Package skep is the map of this module. It holds no code of its own, only the sources of the SDK, for the command line.
//
// Skep is an agent cloud in one binary: it takes agent code as text or WebAssembly and runs it in sealed cells. From the
// bottom up:
//
//	agent    the vocabulary: ids, records, events, limits, errors
//	abi      the contract between guest and host; shared with the guest SDK
//	store    durable data: keys, records, logs, the committer; store/kv is the seam to a database
//	host     runs code: host/prep rewrites modules, host/cell makes cells, host/extism, host/script and host/python
//	         are the families of guests, host/grant answers what a guest asks for
//	plugins  the package format that code is uploaded in
//	runtime  supervises agents: calls, sessions, runs, events
//	api      HTTP; api/client is its Go client
//	cmd      the binary: one file for each verb
//	sdk      what authors import: sdk/js, sdk/go, sdk/rust, sdk/as, sdk/c, sdk/python, sdk/client-js
//
// Imports point from the bottom of this list to its top; internal/arch holds the table and a test.
package skep
