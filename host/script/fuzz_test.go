package script

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

func FuzzSourceMap(f *testing.F) {
	f.Add("AACO,SAAS;;AAAA,C", 1, 3)
	f.Add("gggggggggggggggC", 0, -1)
	f.Add(";,;,A", 2, 1<<30)
	f.Fuzz(func(t *testing.T, mappings string, line, column int) {
		raw, err := json.Marshal(map[string]any{"sources": []string{"skep:a.ts"}, "mappings": mappings})
		if err != nil {
			t.Skip()
		}
		m := NewSourceMap(raw)
		if p, ok := m.Find(line, column); ok && p.File != "a.ts" {
			t.Errorf("%v", p)
		}
		mapText(m, "at f (skep:agent:1:2)\n at g (native)\n at h (skep:web:1:1)")
	})
}

func FuzzTrace(f *testing.F) {
	f.Add("at f (skep:agent:1:2)\nat g (skep:agent:999999999999999999999:0)\nat h (skep:web:1)")
	f.Add("skep:agent:")
	m := NewSourceMap([]byte(`{"sources":["skep:a.ts"],"mappings":"AAAA"}`))
	f.Fuzz(func(t *testing.T, trace string) {
		tidy(m, trace)
		topOf(m, trace)
		if out := mapText(m, trace); len(out) > len(trace)+16*strings.Count(trace, moduleName) {
			t.Errorf("%q grew to %q", trace, out)
		}
	})
}

func FuzzReplaceUTF8(f *testing.F) {
	f.Add([]byte("a\xe2\x82b\xf0\x9f\x98\xed\xa0\x80"))
	f.Fuzz(func(t *testing.T, b []byte) {
		out := replaceUTF8(b)
		if !utf8.Valid(out) {
			t.Errorf("%q is not valid", out)
		}
		if utf8.Valid(b) && !bytes.Equal(b, out) {
			t.Errorf("%q became %q", b, out)
		}
	})
}

func FuzzCrypto(f *testing.F) {
	f.Add([]byte(`{"op":"import","alg":"ECDSA","format":"spki"}`), []byte{0x30, 0}, []byte{})
	f.Add([]byte(`{"op":"verify","alg":"ECDSA","hash":"SHA-256","sig":"AAAA"}`), []byte{4}, []byte{})
	f.Add([]byte(`{"op":"import","alg":"Ed25519","format":"jwk","jwk":{"kty":"OKP","crv":"Ed25519","x":"AA","d":""}}`), []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, request, key, data []byte) {
		if _, err := doCrypto(request, key, data, strings.NewReader(strings.Repeat("x", 1000))); err != nil && !strings.Contains(err.Error(), ": ") {
			t.Errorf("%v has no name", err)
		}
	})
}

func FuzzResolve(f *testing.F) {
	f.Add(`{"exports":{"./*":{"import":"./x/*"}}}`, "p/y")
	f.Add(`{"exports":[null,"./a.js"],"imports":{"#a":"./a.js"}}`, "#a")
	f.Add(`{"main":"..","browser":{"./a.js":false}}`, "./node_modules/p")
	f.Fuzz(func(t *testing.T, manifest, name string) {
		tr, err := newTree(files("a.js", "a.js", "", "node_modules/p/package.json", manifest, "node_modules/p/a.js", ""), &BundleOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, importer := range []string{"a.js", "node_modules/p/a.js"} {
			if p, err := tr.resolve(importer, name, false); err == nil && p != "" && !tr.has(p) {
				t.Errorf("%q resolves to %q, which is not there", name, p)
			}
		}
	})
}

// FuzzLoaded is for what the prelude says, which the author's code cannot reach but a broken engine might garble.
func FuzzLoaded(f *testing.F) {
	f.Add([]byte(`{"name":"RangeError","message":"x","stack":"at f (skep:agent:1:1)"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		v := &vm{}
		v.setFailure(b)
		if k := agent.KindOf(v.failure); k != agent.Failed && k != agent.Exhausted {
			t.Errorf("%v", v.failure)
		}
		(&vm{}).setLoaded(b)
	})
}
