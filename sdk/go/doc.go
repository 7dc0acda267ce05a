// Package skep is what the author of a Skep agent in Go imports. It speaks the Extism ABI and Skep's own calls, and needs
// nothing but the plain Go compiler:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o agent.wasm .
//
// An agent is a main package with an empty main and one exported function for each thing it can do:
//
//	//go:wasmexport greet
//	func greet() int32 {
//		return skep.Do(func(in Person) (Greeting, error) {
//			return Greeting{Text: "Hello, " + in.Name}, nil
//		})
//	}
//
// Every call runs in a fresh copy of the program as it was after its package variables and init functions had run, so
// nothing that one call leaves in memory is seen by the next.
//
// Off WebAssembly the same code runs against a Fake, so that an agent's functions can be tested with go test.
package skep
