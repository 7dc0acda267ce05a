// Package guest holds the files of the script guest: the engine, QuickJS-ng as WebAssembly, and the prelude that is built
// from src. Their licences are in NOTICE.
package guest

import _ "embed"

// Wasm is quickjs.wasm of the npm package quickjs-wasi, at the version that package.json pins.
//
//go:embed quickjs.wasm
var Wasm []byte

// WasmSHA256 is the checksum of Wasm.
const WasmSHA256 = "c0bd8f296e18cf074969f6401b9ecb72609a1323818ec2b9bf7a8f8d740d1363"

// Prelude is the script that every cell begins with. Its value is the function that connects it to the driver.
//
//go:embed prelude.js
var Prelude []byte
