package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mayImport lists, for each package, the packages of this module it may import. A package that matches no line is an
// error, so a new package is a decision. A trailing /* covers every package below; the longest match wins.
var mayImport = map[string][]string{
	"abi":   {},
	"agent": {},

	"store":            {"agent", "store/blob", "store/instance", "store/kv", "store/internal/*"},
	"store/instance":   {"agent"},
	"store/blob":       {"agent"},
	"store/internal/*": {"agent", "store/kv"},
	"store/kv":         {},
	"store/kv/kvtest":  {"store/kv"},
	"store/instance/*": {"agent", "store/instance"},
	"store/memkv":      {"store/kv"},
	"store/badgerkv":   {"agent", "store/kv", "store/internal/*"},
	"store/pebblekv":   {"agent", "store/kv", "store/internal/*"},
	"store/engine":     {"agent", "store/badgerkv", "store/kv", "store/memkv", "store/pebblekv"},
	"store/backup":     {"agent", "store", "store/blob", "store/engine", "store/internal/*", "store/kv"},
	"store/doctor":     {"agent", "store", "store/engine", "store/internal/*", "store/ledger"},
	"store/faultkv":    {"store/kv"},
	"store/ledger":     {"agent", "store", "store/internal/*", "store/kv"},

	"host":              {"abi", "agent", "host/cell", "host/extism", "host/fair", "host/python", "host/script", "host/wasi"},
	"host/worker":       {"agent", "host", "host/fair"},
	"host/fair":         {"agent"},
	"host/batch":        {"abi", "agent", "host/cell"},
	"host/python":       {"abi", "agent", "host/batch", "host/cell", "host/wasi"},
	"host/prep":         {"agent"},
	"host/cell":         {"agent", "host/prep"},
	"host/wasi":         {"agent", "host/cell"},
	"host/extism":       {"abi", "agent", "host/batch", "host/cell", "host/wasi"},
	"host/script":       {"abi", "agent", "host/cell", "host/prep", "host/script/guest"},
	"host/script/guest": {},
	"host/egress":       {"agent"},
	"host/grant":        {"abi", "agent"},
	"host/hostile":      {},
	"host/grant/*":      {"abi", "agent", "host/grant"},

	"host/grant/http":            {"abi", "agent", "host/egress", "host/grant"},
	"host/grant/http/clienttest": {"agent", "host/egress", "host/grant/http"},

	"vault":             {"agent", "store", "vault/kek"},
	"vault/inject":      {"agent", "vault", "vault/scrub"},
	"vault/scrub":       {},
	"vault/kek":         {"agent"},
	"vault/kek/kektest": {},

	"tools":        {"abi", "agent", "store", "tools/code", "tools/hook", "tools/policy"},
	"tools/hook":   {"agent", "tools/policy"},
	"tools/policy": {"agent", "tools/shell"},
	"tools/shell":  {"agent"},
	"tools/code":   {"abi", "agent"},

	"tools/code/codetest": {"agent"},

	"tools/program": {"agent"},
	"tools/link":    {"agent"},
	"tools/skill":   {"agent", "plugins", "store"},
	"tools/mcp":     {"agent", "host/egress", "tools", "vault/scrub"},
	"tools/openapi": {"agent", "host/egress", "tools"},
	"tools/builtin": {"abi", "agent", "store", "tools", "tools/*"},

	"tools/mcp/conformance": {"agent", "host/egress", "tools", "tools/mcp"},

	"gateway":          {"agent", "gateway/*", "host/egress", "store", "store/ledger", "vault/scrub"},
	"gateway/wire":     {"agent"},
	"gateway/sse":      {},
	"gateway/chat":     {"agent", "gateway/sse", "gateway/wire", "gateway/wire/*"},
	"gateway/response": {"agent", "gateway/sse", "gateway/wire", "gateway/wire/*"},
	"gateway/message":  {"agent", "gateway/sse", "gateway/wire", "gateway/wire/*"},
	"gateway/gemini":   {"agent", "gateway/sse", "gateway/wire", "gateway/wire/*"},
	"gateway/embed":    {"agent", "gateway/sse", "gateway/wire", "gateway/wire/*"},
	"gateway/wire/*":   {"agent", "gateway/wire", "gateway/wire/raw"},
	"gateway/price":    {"agent"},
	"gateway/limit":    {"agent", "store/ledger"},
	"gateway/guard":    {"agent", "gateway/wire"},
	"gateway/leak":     {"gateway/sse", "gateway/wire", "vault/scrub"},
	"gateway/cache":    {"agent", "gateway/wire"},
	"gateway/script":   {"agent", "gateway/sse", "gateway/wire"},

	"gateway/httpfront": {"agent", "gateway", "gateway/wire"},

	"driver":           {"agent"},
	"driver/link":      {"agent", "driver"},
	"driver/inside":    {"agent", "driver", "driver/backend"},
	"driver/program":   {"agent", "driver", "driver/backend", "driver/backend/*", "driver/inside"},
	"driver/backend":   {"driver"},
	"driver/backend/*": {"agent", "driver", "driver/backend", "driver/backend/jsonrpc", "driver/backend/stdio", "driver/backend/turn"},

	"driver/backend/backendtest": {"agent", "driver", "driver/backend", "gateway", "gateway/*"}, // tests alone

	"sandbox":            {"agent"},
	"sandbox/checkpoint": {"agent"},
	"sandbox/preview":    {"agent"},
	"sandbox/docker":     {"agent", "sandbox", "sandbox/image"},
	"sandbox/kube":       {"agent", "sandbox"},
	"sandbox/image":      {"agent", "sandbox"},
	"sandbox/keeper":     {"agent", "driver", "driver/link", "sandbox", "sandbox/checkpoint"},
	"sandbox/door":       {"agent", "driver", "gateway", "gateway/httpfront", "host/egress"},

	"sandbox/sandboxtest":     {"agent", "sandbox"},                             // tests alone
	"sandbox/sandboxtest/box": {},                                               // tests alone
	"sandbox/dockertest":      {},                                               // tests alone
	"sandbox/kube/kubetest":   {},                                               // tests alone
	"sandbox/image/imagetest": {"agent", "sandbox/dockertest", "sandbox/image"}, // tests alone

	"gateway/upstream":      {},
	"gateway/gatewaytest":   {"gateway/upstream"},                     // benchmarks alone
	"gateway/wire/wiretest": {"agent", "gateway/sse", "gateway/wire"}, // tests alone

	"plugins":             {"agent"},
	"runtime":             {"abi", "agent", "driver", "driver/link", "sandbox", "sandbox/checkpoint", "sandbox/preview", "gateway", "gateway/wire", "gateway/wire/openai", "host", "host/egress", "host/fair", "host/grant", "host/grant/*", "plugins", "store", "store/instance", "runtime/*", "store/ledger", "tools", "tools/code", "tools/skill", "vault/inject", "vault/scrub"},
	"runtime/durable":     {"agent", "store/instance"},
	"runtime/schedule":    {"agent"},
	"runtime/journal":     {"abi", "agent", "host", "store/instance"},
	"runtime/sockets":     {"abi", "agent", "store/instance"},
	"runtime/sqldb":       {"abi", "agent"},
	"runtime/quota":       {"agent", "host/grant", "store", "store/ledger"},
	"runtime/runtimetest": {"abi", "agent", "host"},

	"api":        {"abi", "agent", "api/mcp", "driver", "driver/link", "gateway", "gateway/*", "host", "plugins", "runtime", "sandbox/checkpoint", "sandbox/keeper", "sandbox/preview", "store", "store/backup", "store/instance", "store/ledger", "tools", "tools/*", "vault"},
	"api/mcp":    {"abi", "agent", "plugins", "runtime", "store", "tools", "tools/*"},
	"api/client": {"agent"},

	"api/mcp/conformance": {}, // tests alone
	"api/aitest":          {}, // tests alone
	"cmd/*":               {"*"},

	"sdk/go":     {"abi"},
	"examples":   {},
	"examples/*": {"sdk/go"},

	"internal/*":        {},
	"internal/bench":    {"*"},
	"internal/soak":     {"*"},
	"internal/crash":    {"agent", "api/client"},
	"internal/crash/*":  {},
	"internal/fault":    {"agent", "store", "store/engine", "store/instance"},
	"internal/bench/*":  {"*"},
	"internal/scaffold": {"agent"},
}

// onlyIn confines a dependency: nothing else may import it directly.
var onlyIn = map[string][]string{
	"github.com/cockroachdb/pebble/v2":    {"store/pebblekv"},
	"github.com/dgraph-io/badger/v4":      {"store/badgerkv"},
	"github.com/evanw/esbuild":            {"host/script", "internal/bench"},
	"github.com/extism/go-pdk":            {},
	"github.com/extism/go-sdk":            {},
	"github.com/gofiber/fiber/v2":         {"api"},
	"github.com/ncruces/go-sqlite3":       {"runtime/sqldb"},
	"github.com/oklog/ulid/v2":            {"agent"},
	"github.com/tetratelabs/wazero":       {"host/cell", "internal/bench", "internal/bench/bare"},
	"github.com/spf13/cobra":              {"cmd/skep"},
	"github.com/netresearch/go-cron":      {"runtime/schedule"},
	"github.com/getkin/kin-openapi":       {"tools/openapi"},
	"github.com/go-sourcemap/sourcemap":   {"host/script"},
	"github.com/fasthttp/websocket":       {"api"},
	"github.com/gofiber/contrib":          {"api"},
	"github.com/rogpeppe/go-internal":     {},
	"github.com/moby/moby/client":         {"sandbox/docker", "sandbox/dockertest", "sandbox/image", "sandbox/kube/kubetest", "internal/bench"},
	"github.com/moby/moby/api":            {"sandbox/docker", "sandbox/dockertest", "sandbox/image", "sandbox/kube/kubetest", "internal/bench"},
	"github.com/containerd/errdefs":       {"sandbox/docker", "sandbox/image", "sandbox/kube/kubetest"},
	"github.com/coder/websocket":          {"driver/inside", "driver/link", "sandbox/kube", "sandbox/kube/kubetest"},
	"github.com/google/go-cmp":            {"store/instance/instancetest", "store/kv/kvtest", "gateway/wire/wiretest", "driver/backend/backendtest"},
	"github.com/klauspost/compress":       {"host/cell", "host/egress", "store/backup"},
	"github.com/valyala/fasthttp":         {"api", "internal/bench", "internal/bench/bare"},
	"github.com/fsnotify/fsnotify":        {"cmd/skep"},
	"github.com/andybalholm/brotli":       {"host/egress"},
	"golang.org/x/net":                    {"host/egress"},
	"filippo.io/age":                      {"vault/kek"},
	"github.com/tink-crypto/tink-go/v2":   {"vault", "vault/kek"},
	"golang.org/x/term":                   {"cmd/skep"},
	"github.com/stretchr/testify":         {},
	"github.com/prometheus":               {"api"},
	"go.opentelemetry.io/otel/sdk":        {"internal/telemetry"},
	"go.opentelemetry.io/proto/otlp":      {},
	"github.com/golang/mock":              {},
	"github.com/modelcontextprotocol":     {"api/mcp", "tools/mcp", "tools/mcp/mcptest", "cmd/skep", "internal/crash"},
	"mvdan.cc/sh/v3":                      {"tools/shell"},
	"github.com/dop251/goja":              {"tools/code"},
	"github.com/santhosh-tekuri":          {"plugins", "tools/code", "tools/mcp"},
	"github.com/tiktoken-go":              {"internal/bench"},
	"github.com/elastic/go-seccomp-bpf":   {"host/worker"},
	"github.com/landlock-lsm/go-landlock": {"host/worker"},
	"kernel.org/pub/linux/libs/security":  {"host/worker"},
	"golang.org/x/sys":                    {"host/cell", "host/worker", "store/internal/disk", "internal/bench", "internal/bench/bare", "internal/fault", "internal/soak", "driver/inside", "gateway/wire/wiretest"},
}

// maxLines is a ceiling that only ever comes down.
const maxLines = 600

type pkg struct {
	ImportPath, Dir                             string
	Imports, GoFiles, TestGoFiles, XTestGoFiles []string
	Module                                      struct{ Path string }
}

func TestArchitecture(t *testing.T) {
	t.Run("host", func(t *testing.T) { check(t) })
	t.Run("guest", func(t *testing.T) { check(t, "GOOS=wasip1", "GOARCH=wasm") })
}

func check(t *testing.T, env ...string) {
	seen := 0
	for _, p := range list(t, env) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")
		if len(p.GoFiles) == 0 {
			continue
		}
		seen++
		t.Run(name, func(t *testing.T) {
			checkFiles(t, p)
			if name == "" {
				return
			}
			allowed, ok := rule(name)
			if !ok {
				t.Fatalf("package %s has no line in mayImport", name)
			}
			for _, imp := range p.Imports {
				checkImport(t, p, name, imp, allowed)
			}
		})
	}
	if seen < 10 {
		t.Errorf("only %d packages were found", seen)
	}
}

func checkImport(t *testing.T, p pkg, name, imp string, allowed []string) {
	if imp == "testing" && !strings.HasSuffix(name, "test") {
		t.Errorf("imports testing: only packages named *test may")
	}
	if own, ok := strings.CutPrefix(imp, p.Module.Path+"/"); ok && !strings.HasPrefix(own, "internal/") && !matches(allowed, own) {
		t.Errorf("imports %s; may import only %v", own, allowed)
	}
	for dep, homes := range onlyIn {
		if (imp == dep || strings.HasPrefix(imp, dep+"/")) && !slices.Contains(homes, name) {
			t.Errorf("imports %s, which only %v may", imp, homes)
		}
	}
}

func matches(allowed []string, name string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		dir, tree := strings.CutSuffix(a, "/*")
		return a == "*" || a == name || tree && strings.HasPrefix(name, dir+"/")
	})
}

// checkFiles wants one package comment for each package, no file above maxLines, and no test that sleeps in real time.
func checkFiles(t *testing.T, p pkg) {
	docs := 0
	for _, f := range p.GoFiles {
		src, err := os.ReadFile(filepath.Join(p.Dir, f))
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), f, src, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if file.Doc != nil {
			docs++
		}
		generated := bytes.Contains(src, []byte("DO NOT EDIT."))
		if n := bytes.Count(src, []byte("\n")); n > maxLines && !generated {
			t.Errorf("%s has %d lines, above %d", f, n, maxLines)
		}
	}
	if docs != 1 {
		t.Errorf("package comment on %d files, want exactly 1", docs)
	}
	for _, f := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
		src, err := os.ReadFile(filepath.Join(p.Dir, f))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(src, []byte("time.Sleep(")) && !bytes.Contains(src, []byte("synctest.")) {
			t.Errorf("%s sleeps in real time: use testing/synctest or wait for the event", f)
		}
	}
}

func rule(name string) (allowed []string, ok bool) {
	best := -1
	for pattern, a := range mayImport {
		dir, tree := strings.CutSuffix(pattern, "/*")
		if match := name == pattern || tree && strings.HasPrefix(name, dir+"/"); match && len(pattern) > best {
			best, allowed, ok = len(pattern), a, true
		}
	}
	return allowed, ok
}

func list(t *testing.T, env []string) []pkg {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Imports,GoFiles,TestGoFiles,XTestGoFiles,Module", "./...")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}
