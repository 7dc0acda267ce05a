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
// # Instances
//
// A call of an instance, which is an agent under a key, has what the instance keeps: Storage, SQL, Shared state, alarms and
// connections. A call is a turn: it has the instance alone, all that it changes is committed at its end, and when it fails nothing
// has happened. What leaves (answers, messages, frames, requests that change the world) leaves after the commit of all before it.
//
// The host calls these handlers by itself, when the module exports them, in any of the three spellings; nobody else can:
//
//	OnConnect, on_connect, onConnect                       a client connected: SocketEvent
//	OnSocketMessage, on_socket_message, onSocketMessage    it sent a frame: SocketEvent
//	OnClose, on_close, onClose                             its connection is gone: SocketEvent
//	OnAlarm, on_alarm, onAlarm                             an alarm without a method: its payload
//	OnStart, on_start, onStart                             the instance's life begins
//	OnUpgrade, on_upgrade, onUpgrade                       its first turn with other code: the digest of the code before, as JSON
//
// # Runs
//
// A run may wait for years: Sleep, SleepUntil, WaitForEvent, Run.Result, and Step between its attempts. While it waits the instance is
// free for others, and what the run did before is committed. The code waits inside a call, so its memory cannot be put aside: a run that
// waits long, or was interrupted, is played again from its beginning, and each call to the host is answered from the journal until the
// place is reached where it was. Nothing is done twice. But the code must ask the same in the same order, else the run stops with both
// sides named. So let it depend on its input and its host alone:
//
//   - Time and crypto/rand are the host's, and Rand is made of them: they repeat. Time stands still between calls of the host.
//   - The order in which range visits a map, the top-level functions of math/rand, and which of several ready channels a select takes
//     come from numbers that were drawn when the program was initialised. The server has the program draw the same ones each time, so
//     they repeat in another process, too, as long as its store is the same, or a backup of it. A replay elsewhere, as by
//     Fake.Replay, sees other orders: sort the keys before calls to the host follow them, where that matters.
//   - Goroutines must not race for calls to the host. Batch makes many at once, and is one entry of the journal.
//   - Package variables are as they were after init in each life. What has to last is in Storage.
//
// Fake.Replay tests it.
//
// Off WebAssembly the same code runs against a Fake, so that an agent's functions can be tested with go test.
package skep
