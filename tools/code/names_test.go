package code

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
)

// named returns tools that have nothing but names.
func named(names ...string) []agent.Tool {
	var tools []agent.Tool
	for _, n := range names {
		s, m, _ := agent.SplitTool(n)
		tools = append(tools, agent.Tool{Name: n, Server: s, Method: m, Input: []byte(`{"type":"object"}`)})
	}
	return tools
}

func TestPaths(t *testing.T) {
	for _, c := range []struct{ name, path string }{
		{"fs.read_file", "tools.fs.read_file"},
		{"everything.get-sum", "tools.everything.get_sum"},
		{"my-server.getSum", "tools.my_server.getSum"},
		{"s.a.b/c d", "tools.s.a_b_c_d"},
		{"s.größe", "tools.s.größe"},
		{"s.🙂", "tools.s._"},
		{"s.𝒳", "tools.s._"},
		{"s.1st", "tools.s._1st"},
		{"2nd.x", "tools._2nd.x"},
		{"s.delete", "tools.s.delete_"},
		{"s.class", "tools.s.class_"},
		{"s.then", "tools.s.then_"},
		{"s.__proto__", "tools.s.__proto___"},
		{"s.constructor", "tools.s.constructor_"},
		{"search.query", "tools.search_.query"},
		{"call.now", "tools.call_.now"},
		{"then.now", "tools.then_.now"},
		{"s.search", "tools.s.search"},
		{"s.$ref", "tools.s.$ref"},
		{"s.", "tools.s._"},
		{"s", "tools.s._"},
		{"s.a\xffb", "tools.s.a_b"},
		{"s.a\u202eb\u200b", "tools.s.a_b_"},
		{"s.a\n*/b", "tools.s.a_b"},
	} {
		n := NewNames(named(c.name))
		if got := n.Path(c.name); got != c.path && c.name != "s" {
			t.Errorf("Path(%q) = %q, want %q", c.name, got, c.path)
		}
		for _, written := range []string{c.name, c.path, strings.TrimPrefix(c.path, "tools.")} {
			if got, ok := n.Find(written); c.name != "s" && (!ok || got != c.name) {
				t.Errorf("Find(%q) = %q, %t, want %q", written, got, ok, c.name)
			}
		}
	}
}

func TestPathsThatCollide(t *testing.T) {
	names := []string{"s.a b", "s.a-b", "s.a.b", "s.a_b", "s.a_b_2", "s-x.m", "s_x.m", "s.then", "s.then_", "tools.x"}
	want := map[string]string{
		"s.a_b": "tools.s.a_b", "s.a_b_2": "tools.s.a_b_2", // as they are
		"s.a b": "tools.s.a_b_3", "s.a-b": "tools.s.a_b_4", "s.a.b": "tools.s.a_b_5",
		"s-x.m": "tools.s_x_2.m", "s_x.m": "tools.s_x.m",
		"s.then": "tools.s.then__2", "s.then_": "tools.s.then_",
		"tools.x": "tools.tools.x",
	}
	for range 4 {
		n := NewNames(named(names...))
		for name, path := range want {
			if got := n.Path(name); got != path {
				t.Errorf("Path(%q) = %q, want %q", name, got, path)
			}
			if got, ok := n.Find(path); !ok || got != name {
				t.Errorf("Find(%q) = %q, %t, want %q", path, got, ok, name)
			}
		}
		slices.Reverse(names)
		names = append(names[3:], names[:3]...)
	}
}

func TestNothingIsFound(t *testing.T) {
	n := NewNames(named("fs.read_file", "fs.write_file"))
	for _, written := range []string{"", ".", "fs", "fs.", "tools", "tools.fs", "read_file", "fs.readFile", "FS.read_file", "fs.read_file.x"} {
		if name, ok := n.Find(written); ok {
			t.Errorf("Find(%q) = %q", written, name)
		}
	}
	if p := n.Path("fs.none"); p != "" {
		t.Errorf("Path of no tool = %q", p)
	}
	if _, ok := NewNames(nil).Find("a.b"); ok {
		t.Error("found a tool in an empty list")
	}
}

func TestNear(t *testing.T) {
	n := NewNames(named("fs.read_file", "fs.read_text_file", "fs.write_file", "github.create_issue", "github.get_issue", "memory.read_graph", "git.log"))
	for _, c := range []struct {
		written string
		want    []string
	}{
		{"fs.readFile", []string{"fs.read_file"}},
		{"tools.fs.raed_file", []string{"fs.read_file"}},
		{"github.create-issues", []string{"github.create_issue"}},
		{"gitlab.create_issue", []string{"github.create_issue"}},
		{"read_file", []string{"fs.read_file"}},
		{"files.read_file", []string{"fs.read_file"}},
		{"fs.text", []string{"fs.read_text_file"}},
		{"weather.forecast", nil},
		{"", nil},
		{strings.Repeat("x", 5000), nil},
	} {
		got := n.Near(c.written)
		if len(c.want) == 0 && len(got) > 0 || len(c.want) > 0 && (len(got) == 0 || got[0] != c.want[0]) {
			t.Errorf("Near(%q) = %q, want %q first", c.written, got, c.want)
		}
	}
}

// TestManyAlike gives out identifiers in linear time.
func TestManyAlike(t *testing.T) {
	var names []string
	for i := range 20_000 {
		names = append(names, "s."+strings.Repeat("-", i%97+1)+fmt.Sprint(i%7)+strings.Repeat("?", i/679+1))
	}
	n := NewNames(named(names...))
	seen := make(map[string]bool)
	for _, name := range names {
		seen[n.Path(name)] = true
	}
	if len(seen) != len(slices.Compact(slices.Sorted(slices.Values(names)))) {
		t.Errorf("%d paths", len(seen))
	}
}

func FuzzNames(f *testing.F) {
	f.Add("fs.read", "fs.re-ad", "fs.re_ad")
	f.Add("then.then", "a\x00.\u2028", ".")
	f.Add("größe.ß", "𝒳.x", "\xff.\xff")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		tools := named(a+".m", b+".m", c+".m", "s."+a, "s."+b, "s."+c)
		n := NewNames(tools)
		slices.Reverse(tools)
		if other := NewNames(tools); !cmp.Equal(n.paths, other.paths) {
			t.Fatal("the order of the tools matters")
		}
		seen := make(map[string]string)
		var js strings.Builder
		for _, x := range tools {
			p := n.Path(x.Name)
			if was, ok := seen[p]; ok && was != x.Name {
				t.Fatalf("%q and %q are both %s", was, x.Name, p)
			}
			seen[p] = x.Name
			fmt.Fprintf(&js, "{ const { %s: { %s } } = tools; void %s }\n", strings.Split(p, ".")[1], strings.Split(p, ".")[2], p)
			for _, written := range []string{x.Name, p} {
				if got, ok := n.Find(written); !ok || got != x.Name {
					t.Fatalf("Find(%q) = %q, %t, want %q", written, got, ok, x.Name)
				}
			}
		}
		if r := api.Transform(js.String(), api.TransformOptions{Format: api.FormatESModule}); len(r.Errors) > 0 {
			t.Fatalf("%s\n%s", r.Errors[0].Text, js.String())
		}
		n.Near(a)
	})
}
