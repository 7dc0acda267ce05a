package store_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

func TestEnvironments(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		target := must(agent.ParseTarget("GET https://example.com"))(t)
		env := agent.Environment{
			App: app, Name: "go", Image: "skep/agents:1", Variables: map[string]string{"A": "=x\n", "b": ""}, Network: []agent.Target{target},
			Packages: []string{"deb:git", "npm:@anthropic-ai/claude-code@2.1.332"}, Requires: []string{"network.none"}, Setup: "make",
			Size: agent.SandboxSize{Memory: 1 << 30, CPUs: 0.5}, Idle: time.Minute,
		}
		first := must(s.PutEnvironment(ctx, env))(t)
		if first.Revision != 1 || first.Created.IsZero() {
			t.Error(first)
		}
		same := env
		same.Revision, same.Created, same.Variables = 7, epoch, map[string]string{"b": "", "A": "=x\n"}
		if again := must(s.PutEnvironment(ctx, same))(t); cmp.Diff(first, again) != "" {
			t.Error(cmp.Diff(first, again))
		}
		env.Setup = "make all"
		second := must(s.PutEnvironment(ctx, env))(t)
		if second.Revision != 2 || second.Setup != "make all" {
			t.Error(second)
		}
		for name, want := range map[string]agent.Environment{"go": second, "go@1": first, "go@2": second} {
			if diff := cmp.Diff(want, must(s.Environment(ctx, app, name))(t)); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		for name, want := range map[string]agent.Kind{
			"go@3": agent.NotFound, "rust": agent.NotFound, "rust@1": agent.NotFound,
			"go@0": agent.Invalid, "go@": agent.Invalid, "go@01": agent.Invalid, "go@-1": agent.Invalid, "go@x": agent.Invalid, "Go": agent.Invalid, "": agent.Invalid,
		} {
			_, err := s.Environment(ctx, app, name)
			if agent.KindOf(err) != want {
				t.Errorf("%q: %v", name, err)
			}
		}
		_, err := s.Environment(ctx, "nowhere", "go")
		wantKind(t, err, agent.NotFound)
		_, err = s.PutEnvironment(ctx, agent.Environment{App: "nowhere", Name: "go", Image: "x"})
		wantKind(t, err, agent.NotFound)

		// A deleted environment is out of reach but for its revisions, and one of that name goes on counting.
		must(s.PutEnvironment(ctx, agent.Environment{App: app, Name: "rust", Image: "x"}))(t)
		if err := s.DeleteEnvironment(ctx, app, "go"); err != nil {
			t.Fatal(err)
		}
		wantKind(t, s.DeleteEnvironment(ctx, app, "go"), agent.NotFound)
		wantKind(t, s.DeleteEnvironment(ctx, app, "none"), agent.NotFound)
		_, err = s.Environment(ctx, app, "go")
		wantKind(t, err, agent.NotFound)
		for name, want := range map[string]agent.Environment{"go@1": first, "go@2": second} {
			if diff := cmp.Diff(want, must(s.Environment(ctx, app, name))(t)); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		list, next, err := s.Environments(ctx, app, agent.Page{})
		if err != nil || next != "" || len(list) != 1 || list[0].Name != "rust" {
			t.Error(list, next, err)
		}
		third := must(s.PutEnvironment(ctx, env))(t)
		if third.Revision != 3 {
			t.Error(third)
		}
		revs, _, err := s.EnvironmentRevisions(ctx, app, "go", agent.Page{})
		if diff := cmp.Diff([]agent.Environment{first, second, third}, revs); err != nil || diff != "" {
			t.Error(diff, err)
		}
		if err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
	})
}

// A session stays with the revision that it has begun with.
func TestFreezeEnvironment(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		addAgent(t, s, "a")
		one, two := addSession(t, s, "a").ID, addSession(t, s, "a").ID
		put := func(image string) {
			t.Helper()
			must(s.PutEnvironment(ctx, agent.Environment{App: app, Name: "e", Image: image}))(t)
		}
		freeze := func(se agent.SessionID, name string, want int64) {
			t.Helper()
			if env := must(s.FreezeEnvironment(ctx, app, se, name))(t); env.Revision != want {
				t.Errorf("%s has revision %d, want %d", name, env.Revision, want)
			}
		}
		_, err := s.FreezeEnvironment(ctx, app, one, "e")
		wantKind(t, err, agent.NotFound)
		put("1")
		_, err = s.FreezeEnvironment(ctx, app, "none", "e")
		wantKind(t, err, agent.NotFound)
		freeze(one, "e", 1)
		put("2")
		freeze(one, "e", 1)
		freeze(one, "e@2", 2) // is not what it stays with
		freeze(one, "e", 1)
		freeze(two, "e", 2)
		if err := s.DeleteEnvironment(ctx, app, "e"); err != nil {
			t.Fatal(err)
		}
		freeze(one, "e", 1)
		_, err = s.FreezeEnvironment(ctx, app, addSession(t, s, "a").ID, "e")
		wantKind(t, err, agent.NotFound)
		if err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestEnvironmentIsChecked(t *testing.T) {
	s := openStore(t, memkv.New(), t.TempDir(), nil)
	nth := func(n int, f func(i int) string) (out []string) {
		for i := range n {
			out = append(out, f(i))
		}
		return out
	}
	many := func(n int) map[string]string {
		out := map[string]string{}
		for i := range n {
			out[fmt.Sprint("V", i)] = ""
		}
		return out
	}
	vars := func(kv ...string) func(*agent.Environment) {
		return func(e *agent.Environment) {
			e.Variables = map[string]string{}
			for i := 0; i < len(kv); i += 2 {
				e.Variables[kv[i]] = kv[i+1]
			}
		}
	}
	size := func(s agent.SandboxSize) func(*agent.Environment) { return func(e *agent.Environment) { e.Size = s } }
	for _, c := range []struct {
		name   string
		change func(*agent.Environment)
		want   string // in the error; "" for none
	}{
		{"plain", func(*agent.Environment) {}, ""},
		{"name", func(e *agent.Environment) { e.Name = "a@1" }, "environment name"},
		{"no image", func(e *agent.Environment) { e.Image = "" }, "it names no image"},
		{"image", func(e *agent.Environment) { e.Image = "-v" }, "image"},
		{"image with space", func(e *agent.Environment) { e.Image = "a b" }, "image"},
		{"image by digest", func(e *agent.Environment) { e.Image = "host:5000/a/b@sha256:" + strings.Repeat("a", 64) }, ""},
		{"longest image", func(e *agent.Environment) { e.Image = strings.Repeat("a", 255) }, ""},
		{"too long an image", func(e *agent.Environment) { e.Image = strings.Repeat("a", 256) }, "image"},
		{"provider", func(e *agent.Environment) { e.Provider = "a/b" }, "provider"},
		{"runtime", func(e *agent.Environment) { e.Runtime = "--x" }, "runtime"},
		{"longest setup", func(e *agent.Environment) { e.Setup = strings.Repeat("x", 64<<10) }, ""},
		{"too long a setup", func(e *agent.Environment) { e.Setup = strings.Repeat("x", 64<<10+1) }, "65537 bytes: 65536 are allowed"},
		{"setup with NUL", func(e *agent.Environment) { e.Setup = "a\x00" }, "NUL"},
		{"setup is bytes", func(e *agent.Environment) { e.Setup = "\xff" }, "UTF-8"},
		{"longest description", func(e *agent.Environment) { e.Description = strings.Repeat("x", 4<<10) }, ""},
		{"too long a description", func(e *agent.Environment) { e.Description = strings.Repeat("x", 4<<10+1) }, "description"},

		{"variable", vars("_a1", "=\n"), ""},
		{"no name", vars("", "x"), "variable name"},
		{"name with =", vars("A=B", "x"), "variable name"},
		{"name with NUL", vars("A\x00", "x"), "variable name"},
		{"name of a digit", vars("1A", "x"), "variable name"},
		{"longest name", vars(strings.Repeat("A", 128), ""), ""},
		{"too long a name", vars(strings.Repeat("A", 129), ""), "variable name"},
		{"value with NUL", vars("A", "a\x00b"), "variable A is no text"},
		{"value is bytes", vars("A", "\xff"), "variable A is no text"},
		{"home", vars("HOME", "/"), "variable HOME is the driver's own"},
		{"proxy", vars("https_proxy", "x"), "the driver's own"},
		{"model", vars("ANTHROPIC_BASE_URL", "x"), "the driver's own"},
		{"skep", vars("Skep_X", "x"), "the driver's own"},
		{"path", vars("PATH", "/bin"), ""},
		{"most bytes", vars("A", strings.Repeat("x", 64<<10-1)), ""},
		{"too many bytes", vars("A", strings.Repeat("x", 64<<10)), "65537 bytes together: 65536 are allowed"},
		{"most variables", func(e *agent.Environment) { e.Variables = many(256) }, ""},
		{"too many variables", func(e *agent.Environment) { e.Variables = many(257) }, "257 variables"},

		{"package", func(e *agent.Environment) { e.Packages = []string{"git"} }, "package"},
		{"a range of versions", func(e *agent.Environment) { e.Packages = []string{"npm:left-pad@^1.0.0"} }, "no exact version"},
		{"any version", func(e *agent.Environment) { e.Packages = []string{"npm:left-pad", "deb:g++"} }, ""},
		{"package twice", func(e *agent.Environment) { e.Packages = []string{"deb:git", "deb:git"} }, "twice"},
		{"most packages", func(e *agent.Environment) {
			e.Packages = nth(256, func(i int) string { return fmt.Sprint("deb:p", i) })
		}, ""},
		{"too many packages", func(e *agent.Environment) {
			e.Packages = nth(257, func(i int) string { return fmt.Sprint("deb:p", i) })
		}, "257 packages"},
		{"network", func(e *agent.Environment) { e.Network = []agent.Target{{Scheme: "ftp", Host: "x"}} }, "network target"},
		{"no network", func(e *agent.Environment) { e.Network = []agent.Target{{}} }, "network target"},
		{"requires", func(e *agent.Environment) { e.Requires = []string{"Limit Memory"} }, "capability"},
		{"requires twice", func(e *agent.Environment) { e.Requires = []string{"pause", "pause"} }, "twice"},

		{"least", size(agent.SandboxSize{Memory: 64 << 20, CPUs: 0.1, Pids: 32, Disk: 16 << 20}), ""},
		{"most", size(agent.SandboxSize{Memory: 1 << 40, CPUs: 256, Pids: 1 << 20, Disk: 1 << 40}), ""},
		{"little memory", size(agent.SandboxSize{Memory: 64<<20 - 1}), "bytes of memory is not between"},
		{"much memory", size(agent.SandboxSize{Memory: 1<<40 + 1}), "bytes of memory is not between"},
		{"negative memory", size(agent.SandboxSize{Memory: -1}), "bytes of memory is not between"},
		{"few CPUs", size(agent.SandboxSize{CPUs: 0.099}), "CPUs is not between"},
		{"many CPUs", size(agent.SandboxSize{CPUs: 256.1}), "CPUs is not between"},
		{"no number", size(agent.SandboxSize{CPUs: math.NaN()}), "CPUs is not between"},
		{"infinite", size(agent.SandboxSize{CPUs: math.Inf(1)}), "CPUs is not between"},
		{"few processes", size(agent.SandboxSize{Pids: 31}), "processes is not between"},
		{"many processes", size(agent.SandboxSize{Pids: 1<<20 + 1}), "processes is not between"},
		{"small disk", size(agent.SandboxSize{Disk: 16<<20 - 1}), "bytes of disk is not between"},

		{"shortest", func(e *agent.Environment) { e.Idle, e.Life = time.Second, time.Second }, ""},
		{"longest", func(e *agent.Environment) { e.Idle, e.Life = 90*24*time.Hour, 366*24*time.Hour }, ""},
		{"short idle", func(e *agent.Environment) { e.Idle = time.Second - 1 }, "idle time"},
		{"negative idle", func(e *agent.Environment) { e.Idle = -1 }, "idle time"},
		{"long life", func(e *agent.Environment) { e.Life = 366*24*time.Hour + 1 }, "a life of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := agent.Environment{App: app, Name: "e", Image: "skep/agents"}
			c.change(&env)
			_, err := s.PutEnvironment(t.Context(), env)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantKind(t, err, agent.Invalid)
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q does not say %q", err, c.want)
			}
		})
	}
}
