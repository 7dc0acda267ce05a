package plugins

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/skep-dev/skep/agent"
)

// asked lists the imports that only a module may have whose manifest asks for what they reach. skep_call is not among them: which call it
// makes is known when it makes it.
var asked = map[string]struct {
	granted func(agent.Grants) bool
	line    string // of the manifest
}{
	"extism:host/env http_request": {func(g agent.Grants) bool { return len(g.HTTP) > 0 }, `"grants": {"http": ["GET https://HOST/**"]}`},
}

// CheckImports refuses a WebAssembly module that imports more than its package's manifest asks for. Without a manifest a module
// may import what it likes: it is granted nothing by that.
func CheckImports(src agent.Source, m Manifest) error {
	if src.Kind != agent.Wasm || !m.Given {
		return nil
	}
	names, err := imports(src.Files[src.Main])
	if err != nil {
		return agent.Wrap(agent.Invalid, err, src.Main+": its imports cannot be read")
	}
	var asks agent.Grants
	if m.Grants != nil {
		asks = *m.Grants
	}
	for _, name := range names {
		if a, ok := asked[name]; ok && !a.granted(asks) {
			return &agent.Error{
				Kind: agent.Invalid, Pos: agent.Pos{File: ManifestFile},
				Msg:  fmt.Sprintf("%s imports %q, which %s does not ask for", src.Main, name, ManifestFile),
				Hint: "add to " + ManifestFile + " the line " + a.line + ", with the hosts that the code calls; or build the module without that import",
			}
		}
	}
	return nil
}

var errModule = errors.New("not a WebAssembly module")

const (
	importSection = 2
	maxImports    = 10_000
)

// imports lists what a module imports, each as its module, a space and its name (WebAssembly core specification, section 5.5.5).
func imports(b []byte) ([]string, error) {
	if !isWasm(b) || len(b) < 8 {
		return nil, errModule
	}
	for b = b[8:]; len(b) > 0; {
		id := b[0]
		section, rest, err := cut(b[1:])
		if err != nil {
			return nil, err
		}
		if id == importSection {
			return importNames(section)
		}
		b = rest
	}
	return nil, nil
}

func importNames(b []byte) ([]string, error) {
	n, b, err := number(b)
	if err != nil || n > maxImports {
		return nil, errModule
	}
	names := make([]string, 0, n)
	for range n {
		var module, name []byte
		if module, b, err = cut(b); err != nil {
			return nil, err
		}
		if name, b, err = cut(b); err != nil {
			return nil, err
		}
		if b, err = skipType(b); err != nil {
			return nil, err
		}
		names = append(names, string(module)+" "+string(name))
	}
	return names, nil
}

// skipType steps over what an import is: a function, a table, a memory, a global or a tag.
func skipType(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, errModule
	}
	kind, b := b[0], b[1:]
	switch kind {
	case 0: // a function: its type
		_, b, err := number(b)
		return b, err
	case 1: // a table: its type, which may be of several bytes, and limits
		b, err := skipValueType(b)
		if err != nil {
			return nil, err
		}
		return skipLimits(b)
	case 2:
		return skipLimits(b)
	case 3: // a global: its type, and whether it changes
		b, err := skipValueType(b)
		if err != nil || len(b) == 0 {
			return nil, errModule
		}
		return b[1:], nil
	case 4:
		if len(b) == 0 {
			return nil, errModule
		}
		_, b, err := number(b[1:])
		return b, err
	}
	return nil, errModule
}

func skipValueType(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, errModule
	}
	if b[0] == 0x63 || b[0] == 0x64 { // a reference with a heap type
		_, b, err := number(b[1:])
		return b, err
	}
	return b[1:], nil
}

func skipLimits(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, errModule
	}
	flags := b[0]
	_, b, err := number(b[1:])
	if err == nil && flags&1 != 0 {
		_, b, err = number(b)
	}
	return b, err
}

// number reads an unsigned LEB128.
func number(b []byte) (uint64, []byte, error) {
	n, k := binary.Uvarint(b)
	if k <= 0 {
		return 0, nil, errModule
	}
	return n, b[k:], nil
}

// cut reads bytes that their number is in front of.
func cut(b []byte) (head, rest []byte, err error) {
	n, b, err := number(b)
	if err != nil || n > uint64(len(b)) {
		return nil, nil, errModule
	}
	return b[:n], b[n:], nil
}
