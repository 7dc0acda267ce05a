package script

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"strings"
)

// resolve finds the file that name means in a file called importer. An empty path stands for an empty module.
func (t *tree) resolve(importer, name string, required bool) (string, error) {
	switch {
	case strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../") || name == "." || name == "..":
		return t.relative(path.Join(path.Dir(importer), name), name, importer)
	case strings.HasPrefix(name, "/"):
		return t.relative(strings.TrimLeft(path.Clean(name), "/"), name, importer)
	case strings.Contains(name, "://") || strings.HasPrefix(name, "data:"):
		return "", fmt.Errorf("%q cannot be imported: code comes from the uploaded files only; upload the file and import it by its path", name)
	case strings.HasPrefix(name, "node:") || strings.HasPrefix(name, "cloudflare:") || strings.HasPrefix(name, "bun:"):
		return "", notHere(name)
	case strings.HasPrefix(name, "#"):
		return t.internal(importer, name, required)
	}
	return t.packaged(importer, name, required)
}

func notHere(name string) error {
	return fmt.Errorf("%q is not available here: agents have the web's globals (fetch, URL, crypto, streams, ...) and \"skep\"", name)
}

// relative resolves a path of the tree.
func (t *tree) relative(p, name, importer string) (string, error) {
	if p == ".." || strings.HasPrefix(p, "../") {
		return "", fmt.Errorf("%q is outside of the uploaded files", name)
	}
	if found, ok := t.file(p); ok {
		return found, nil
	}
	return "", fmt.Errorf("%q was not found: there is no file %q, nor one with an extension of a script or an index file in it", name, p)
}

var extensions = []string{".ts", ".tsx", ".mts", ".js", ".mjs", ".jsx", ".cts", ".cjs", ".json"}

// rewritten lists what TypeScript lets an import with a script's extension mean.
var rewritten = map[string][]string{".js": {".ts", ".tsx"}, ".mjs": {".mts"}, ".cjs": {".cts"}, ".jsx": {".tsx"}}

// file finds a file by a path that may lack its extension or name a directory.
func (t *tree) file(p string) (string, bool) {
	p = path.Clean(p)
	if _, ok := t.files[p]; ok {
		return p, true
	}
	if ext := path.Ext(p); ext != "" {
		for _, e := range rewritten[ext] {
			if q := strings.TrimSuffix(p, ext) + e; t.has(q) {
				return q, true
			}
		}
	}
	for _, e := range extensions {
		if t.has(p + e) {
			return p + e, true
		}
	}
	if !t.dirs[p] {
		return "", false
	}
	if m := t.manifest(p); m != nil {
		for _, entry := range []string{m.browserMain(), m.Module, m.Main} {
			if entry == "" || path.Clean(entry) == "." {
				continue
			}
			if found, ok := t.file(path.Join(p, entry)); ok {
				return found, true
			}
		}
	}
	for _, e := range extensions {
		if q := path.Join(p, "index"+e); t.has(q) {
			return q, true
		}
	}
	return "", false
}

func (t *tree) has(p string) bool {
	_, ok := t.files[p]
	return ok
}

func (m *manifest) browserMain() string {
	var s string
	_ = json.Unmarshal(m.Browser, &s)
	return s
}

// nodeBuiltins are the names that packages import without "node:".
const nodeBuiltins = ` assert async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns domain ` +
	`events fs http http2 https inspector module net os path perf_hooks process punycode querystring readline repl stream ` +
	`string_decoder sys timers tls trace_events tty url util v8 vm wasi worker_threads zlib `

// packaged resolves a bare name in the node_modules that were uploaded.
func (t *tree) packaged(importer, name string, required bool) (string, error) {
	pkg, sub := splitPackage(name)
	for dir := path.Dir(importer); ; dir = path.Dir(dir) {
		at := path.Join(dir, "node_modules", pkg)
		if t.dirs[at] {
			return t.inPackage(at, sub, name, required)
		}
		if found, ok := t.file(at); ok && sub == "." {
			return found, nil
		}
		if dir == "." || dir == "/" {
			break
		}
	}
	if strings.Contains(nodeBuiltins, " "+pkg+" ") {
		return "", notHere(name)
	}
	return "", fmt.Errorf("the package %q was not found: upload it in node_modules, or bundle the agent before", name)
}

// splitPackage divides "@scope/name/sub/path" into the package and "./sub/path".
func splitPackage(name string) (pkg, sub string) {
	parts := strings.SplitN(name, "/", 3)
	n := 1
	if strings.HasPrefix(name, "@") {
		n = 2
	}
	if len(parts) <= n {
		return name, "."
	}
	return strings.Join(parts[:n], "/"), "./" + strings.Join(parts[n:], "/")
}

// inPackage resolves sub, "." or "./...", in the package at dir.
func (t *tree) inPackage(dir, sub, name string, required bool) (string, error) {
	m := t.manifest(dir)
	if m != nil && len(m.Exports) > 0 && string(m.Exports) != "null" {
		to, ok := matchExports(m.Exports, sub, conditions(required))
		if !ok {
			return "", fmt.Errorf("%q was not found: the package's exports have no %q for these conditions: worker, browser, import, default", name, sub)
		}
		p := path.Join(dir, to)
		if !t.has(p) {
			return "", fmt.Errorf("%q was not found: the package's exports say %q, which was not uploaded", name, p)
		}
		return p, nil
	}
	if found, ok := t.file(path.Join(dir, sub)); ok {
		return t.browserFile(dir, m, found), nil
	}
	return "", fmt.Errorf("%q was not found in the package at %q", name, dir)
}

// browserFile applies a "browser" object: files to be replaced, or left empty by false.
func (t *tree) browserFile(dir string, m *manifest, p string) string {
	if m == nil {
		return p
	}
	var table map[string]json.RawMessage
	if json.Unmarshal(m.Browser, &table) != nil {
		return p
	}
	to, ok := table["./"+strings.TrimPrefix(p, dir+"/")]
	if !ok {
		return p
	}
	var s string
	if json.Unmarshal(to, &s) != nil {
		return ""
	}
	if found, ok := t.file(path.Join(dir, s)); ok {
		return found
	}
	return p
}

// internal resolves a "#name" by the "imports" of the importer's package.
func (t *tree) internal(importer, name string, required bool) (string, error) {
	for dir := path.Dir(importer); ; dir = path.Dir(dir) {
		if m := t.manifest(dir); m != nil {
			to, ok := matchExports(m.Imports, name, conditions(required))
			switch {
			case ok && strings.HasPrefix(to, "./"):
				return t.relative(path.Join(dir, to), name, importer)
			case ok:
				return t.packaged(importer, to, required)
			}
			break
		}
		if dir == "." || dir == "/" {
			break
		}
	}
	return "", fmt.Errorf("%q was not found in the imports of the package.json", name)
}

func conditions(required bool) map[string]bool {
	kind := "import"
	if required {
		kind = "require"
	}
	return map[string]bool{"worker": true, "workerd": true, "browser": true, kind: true, "module": !required, "default": true, "production": true}
}

// matchExports follows "exports" or "imports" of a package.json (Node.js, "Packages"): subpaths, patterns and conditions in order.
func matchExports(raw json.RawMessage, sub string, on map[string]bool) (string, bool) {
	keys, values, ok := ordered(raw)
	if !ok || len(keys) == 0 || (!strings.HasPrefix(keys[0], ".") && !strings.HasPrefix(keys[0], "#")) {
		if sub != "." {
			return "", false
		}
		return matchTarget(raw, "", on)
	}
	best, star := -1, ""
	for i, k := range keys {
		if k == sub {
			return matchTarget(values[i], "", on)
		}
		before, after, pattern := strings.Cut(k, "*")
		if !pattern || !strings.HasPrefix(sub, before) || !strings.HasSuffix(sub, after) || len(sub) < len(before)+len(after) {
			continue
		}
		if best < 0 || len(before) > len(strings.SplitN(keys[best], "*", 2)[0]) {
			best, star = i, sub[len(before):len(sub)-len(after)]
		}
	}
	if best < 0 {
		return "", false
	}
	return matchTarget(values[best], star, on)
}

func matchTarget(raw json.RawMessage, star string, on map[string]bool) (string, bool) {
	var s string
	if json.Unmarshal(raw, &s) == nil && s != "" {
		return strings.ReplaceAll(s, "*", star), true
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		for _, v := range list {
			if to, ok := matchTarget(v, star, on); ok {
				return to, true
			}
		}
		return "", false
	}
	keys, values, ok := ordered(raw)
	if !ok {
		return "", false
	}
	for i, k := range keys {
		if on[k] {
			if to, ok := matchTarget(values[i], star, on); ok {
				return to, true
			}
		}
	}
	return "", false
}

// ordered reads a JSON object with its keys in their order, which conditions depend on.
func ordered(raw json.RawMessage) (keys []string, values []json.RawMessage, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, false
	}
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return nil, nil, false
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, nil, false
		}
		keys = append(keys, k.(string))
		values = append(values, v)
	}
	return keys, values, true
}
