package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func readGrants(t testing.TB, s string) Grants {
	t.Helper()
	var g Grants
	if s == "" {
		return g
	}
	if err := json.Unmarshal([]byte(s), &g); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return g
}

// Each grant has a short form, and a long one where more is said.
func TestGrantsJSON(t *testing.T) {
	for _, tt := range []struct{ in, out string }{
		{`{}`, `{}`},
		{`{"http":["GET https://a.example/**"],"secrets":["key"],"agents":["b"],"models":["@cheap"],"tools":["github.*"],"state":{}}`,
			`{"http":["GET https://a.example/**"],"secrets":["key"],"agents":["b"],"models":["@cheap"],"tools":["github.*"],"state":{}}`},
		{`{"http":[{"allow":"https://a.example:443"}]}`, `{"http":["https://a.example"]}`},
		{`{"http":[{"allow":"https://a.example","limits":{"per_call":1,"per_minute":2,"per_day":3}}]}`,
			`{"http":[{"allow":"https://a.example","limits":{"per_call":1,"per_minute":2,"per_day":3}}]}`},
		{`{"secrets":[{"name":"key"},{"name":"two","to":["https://a.example"]}]}`, `{"secrets":["key",{"name":"two","to":["https://a.example"]}]}`},
		{`{"agents":[{"name":"b","limits":{"per_day":3}},{"name":"c"}]}`, `{"agents":[{"name":"b","limits":{"per_day":3}},"c"]}`},
		{`{"agents":["c","b","c"]}`, `{"agents":["b","c"]}`}, // in order, each once
		{`{"state":{"bytes":1,"keys":2}}`, `{"state":{"bytes":1,"keys":2}}`},
	} {
		g := readGrants(t, tt.in)
		if err := g.Check(); err != nil {
			t.Errorf("%s: %v", tt.in, err)
		}
		b, err := json.Marshal(g)
		if err != nil || string(b) != tt.out {
			t.Errorf("%s: got %s, %v", tt.in, b, err)
		}
	}
	for _, bad := range []string{
		`{"http":[1]}`, `{"http":["a.example"]}`, `{"http":[{"allow":"https://a.example","limit":{}}]}`, `{"http":[{"allow":"https://a.example","limits":{"per_hour":1}}]}`,
		`{"secrets":[{"names":"x"}]}`, `{"secrets":[{"name":"x","to":["x"]}]}`, `{"agents":[{"name":"x","limits":{"per_call":1.5}}]}`, `{"tools":[[]]}`,
	} {
		var g Grants
		if err := json.Unmarshal([]byte(bad), &g); err == nil {
			t.Errorf("%s is read as %+v", bad, g)
		}
	}
}

func TestGrantsCheck(t *testing.T) {
	many := func(n int, format string) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(format, i))
		}
		return strings.Join(list, ",")
	}
	for _, tt := range []struct{ in, want string }{ // "" means it is let in
		{`{"agents":[` + many(maxGrants, `"a%d"`) + `]}`, ""},
		{`{"agents":[` + many(maxGrants+1, `"a%d"`) + `]}`, "grants.agents has 257 entries, more than 256"},
		{`{"http":[` + many(maxGrants+1, `"https://a%d.example"`) + `]}`, "grants.http has 257 entries"},
		{`{"secrets":[{"name":"k","to":[` + many(maxGrants, `"https://a%d.example"`) + `]}]}`, ""},
		{`{"secrets":[{"name":"k","to":[` + many(maxGrants+1, `"https://a%d.example"`) + `]}]}`, "grants.secrets k.to has 257 entries"},
		{`{"secrets":["a","a"]}`, `grants.secrets names "a" twice`},
		{`{"secrets":["A"]}`, "is not valid"},
		{`{"agents":["B"]}`, "is not valid"},
		{`{"agents":["b",{"name":"b","limits":{"per_day":1}}]}`, `grants.agents names "b" twice`},
		{`{"tools":["x y"]}`, "is not a name"},
		{`{"tools":[""]}`, "is not a name"},
		{`{"models":["` + strings.Repeat("x", 200) + `"]}`, ""},
		{`{"models":["` + strings.Repeat("x", 201) + `"]}`, "is not a name"},
		{`{"http":[{"allow":"https://a.example","limits":{"per_call":-1}}]}`, "a limit is negative"},
		{`{"secrets":[{"name":"k","limits":{"per_day":-1}}]}`, "a limit is negative"},
		{`{"tools":[{"name":"k","limits":{"per_minute":-1}}]}`, "a limit is negative"},
		{fmt.Sprintf(`{"state":{"bytes":%d,"keys":%d}}`, MaxStateBytes, MaxStateKeys), ""},
		{fmt.Sprintf(`{"state":{"bytes":%d}}`, MaxStateBytes+1), "grants.state: bytes must be"},
		{fmt.Sprintf(`{"state":{"keys":%d}}`, MaxStateKeys+1), "keys between 0 and"},
		{`{"state":{"keys":-1}}`, "keys between 0 and"},
	} {
		g := readGrants(t, tt.in)
		err := g.Check()
		if tt.want == "" && err != nil || tt.want != "" && (KindOf(err) != Invalid || !strings.Contains(fmt.Sprint(err), tt.want)) {
			t.Errorf("%.80s: %v, want %q", tt.in, err, tt.want)
		}
	}
}

func TestGrantsWords(t *testing.T) {
	g := readGrants(t, `{"http":["https://a.example",{"allow":"GET https://b.example/x","limits":{"per_call":1,"per_minute":2,"per_day":3}}],
		"secrets":["key",{"name":"two","to":["https://a.example","https://b.example"]}],"agents":["b"],"models":["@cheap"],"tools":["github.*"],"state":{"keys":5}}`)
	want := []string{
		"make any request to https://a.example",
		"make GET requests to https://b.example, path /x, at most 1 a call, at most 2 a minute, at most 3 a day",
		`use the secret "key" without reading it, wherever it is bound to`,
		`use the secret "two" without reading it, in any request to https://a.example and any request to https://b.example`,
		`call the agent "b"`, `use the model "@cheap"`, `call the tool "github.*"`,
		"keep state of its own, at most 16 MB in 5 keys",
	}
	if d := cmp.Diff(want, g.Words()); d != "" {
		t.Error(d)
	}
	if w := (Grants{}).Words(); w != nil {
		t.Errorf("nothing is %q", w)
	}
}

func TestBeyond(t *testing.T) {
	for _, tt := range []struct {
		name, old, now string
		want           []string // a part of each sentence
	}{
		{"the same", `{"http":["https://a.example"],"state":{}}`, `{"http":["https://a.example"],"state":{}}`, nil},
		{"from nothing", `{}`, `{"http":["https://a.example"],"secrets":["k"],"agents":["b"],"models":["m"],"tools":["t"],"state":{}}`,
			[]string{"a.example", "k", "b", "m", "t", "state"}},
		{"to nothing", `{"http":["https://a.example"],"secrets":["k"],"state":{}}`, `{}`, nil},
		{"a path of a host", `{"http":["https://a.example"]}`, `{"http":["GET https://a.example/x"]}`, nil},
		{"a host of a path", `{"http":["GET https://a.example/x"]}`, `{"http":["https://a.example"]}`, []string{"a.example"}},
		{"two parts of one", `{"http":["https://*.example.com"]}`, `{"http":["https://a.example.com","https://b.example.com/x"]}`, nil},
		{"a limit more", `{"http":["https://a.example"]}`, `{"http":[{"allow":"https://a.example","limits":{"per_day":1}}]}`, nil},
		{"a limit less", `{"http":[{"allow":"https://a.example","limits":{"per_day":1}}]}`, `{"http":["https://a.example"]}`, []string{"a.example"}},
		{"a higher limit", `{"agents":[{"name":"b","limits":{"per_call":1}}]}`, `{"agents":[{"name":"b","limits":{"per_call":2}}]}`, []string{"at most 2 a call"}},
		{"a lower limit", `{"agents":[{"name":"b","limits":{"per_call":2}}]}`, `{"agents":[{"name":"b","limits":{"per_call":1}}]}`, nil},
		{"another limit", `{"agents":[{"name":"b","limits":{"per_call":2}}]}`, `{"agents":[{"name":"b","limits":{"per_day":2}}]}`, []string{"at most 2 a day"}},
		{"a secret narrowed", `{"secrets":["k"]}`, `{"secrets":[{"name":"k","to":["https://a.example"]}]}`, nil},
		{"a secret widened", `{"secrets":[{"name":"k","to":["https://a.example/x"]}]}`, `{"secrets":[{"name":"k","to":["https://a.example"]}]}`, []string{"k"}},
		{"a secret to anywhere", `{"secrets":[{"name":"k","to":["https://a.example"]}]}`, `{"secrets":["k"]}`, []string{"wherever"}},
		{"a tool of a server", `{"tools":["github.*"]}`, `{"tools":["github.read"]}`, nil},
		{"a server of a tool", `{"tools":["github.read"]}`, `{"tools":["github.*"]}`, []string{"github.*"}},
		{"another server", `{"tools":["github.*"]}`, `{"tools":["githubber.read"]}`, []string{"githubber"}},
		{"less state", `{"state":{}}`, `{"state":{"bytes":1,"keys":1}}`, nil},
		{"the default state in numbers", `{"state":{}}`, fmt.Sprintf(`{"state":{"bytes":%d,"keys":%d}}`, DefaultStateBytes, DefaultStateKeys), nil},
		{"more keys", `{"state":{"keys":10}}`, `{"state":{}}`, []string{"state"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := readGrants(t, tt.now).Beyond(readGrants(t, tt.old))
			if len(got) != len(tt.want) {
				t.Fatalf("got %q, want %q", got, tt.want)
			}
			for i, w := range tt.want {
				if !strings.Contains(got[i], w) {
					t.Errorf("got %q, want %q in it", got[i], w)
				}
			}
		})
	}
}

func TestWithAndWithout(t *testing.T) {
	old := `{"http":["GET https://a.example/x","https://b.example"],"secrets":["k"],"tools":["github.read","github.write"],"state":{}}`
	for _, tt := range []struct{ name, with, without, want, err string }{
		{name: "nothing", want: old},
		{name: "more", with: `{"agents":["b"],"http":["https://c.example"]}`,
			want: `{"http":["GET https://a.example/x","https://b.example","https://c.example"],"secrets":["k"],"agents":["b"],"tools":["github.read","github.write"],"state":{}}`},
		{name: "other limits", with: `{"secrets":[{"name":"k","limits":{"per_day":1}}],"state":{"keys":1}}`,
			want: `{"http":["GET https://a.example/x","https://b.example"],"secrets":[{"name":"k","limits":{"per_day":1}}],"tools":["github.read","github.write"],"state":{"keys":1}}`},
		{name: "one less", without: `{"http":["https://b.example"],"secrets":["k"],"state":{}}`,
			want: `{"http":["GET https://a.example/x"],"tools":["github.read","github.write"]}`},
		{name: "what is within", without: `{"http":["https://a.example"],"tools":["github.*"]}`, want: `{"http":["https://b.example"],"secrets":["k"],"state":{}}`},
		{name: "a part", without: `{"http":["GET https://b.example/x"]}`, err: "still be allowed by the grant \"https://b.example\""},
		{name: "not there", without: `{"agents":["b"]}`, err: "grants.agents: \"b\" is not granted"},
		{name: "another host", without: `{"http":["https://c.example"]}`, err: "is not granted"},
		{name: "state twice", without: `{"state":{}}`, with: `{}`, want: `{"http":["GET https://a.example/x","https://b.example"],"secrets":["k"],"tools":["github.read","github.write"]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := readGrants(t, old)
			got, err := before.With(readGrants(t, tt.with)).Without(readGrants(t, tt.without))
			if tt.err != "" {
				if KindOf(err) != Invalid || !strings.Contains(err.Error(), tt.err) || !cmp.Equal(got, before) {
					t.Errorf("got %v", err)
				}
				return
			}
			if d := cmp.Diff(readGrants(t, tt.want), got); d != "" || err != nil {
				t.Errorf("%v\n%s", err, d)
			}
			if d := cmp.Diff(readGrants(t, old), before); d != "" {
				t.Errorf("the grants themselves were changed:\n%s", d)
			}
		})
	}
	if _, err := (Grants{}).Without(Grants{State: &StateGrant{}}); KindOf(err) != Invalid {
		t.Errorf("state that is not granted: %v", err)
	}
}

// A limit holds for all that its grant allows: whoever may only narrow cannot get round it by other grants for the same.
func TestLoosened(t *testing.T) {
	const (
		all     = `"https://a.example"`
		limited = `{"allow":"https://a.example","limits":{"per_day":9}}`
	)
	for _, tt := range []struct {
		name, old, now string
		want           string // a part of the one sentence; empty when there is none
	}{
		{"the same", `{"http":[` + limited + `]}`, `{"http":[` + limited + `]}`, ""},
		{"lower", `{"http":[` + limited + `]}`, `{"http":[{"allow":"https://a.example","limits":{"per_day":3,"per_call":1}}]}`, ""},
		{"all gone", `{"http":[` + limited + `]}`, `{"http":["https://b.example"]}`, ""},
		{"split", `{"http":[` + limited + `]}`,
			`{"http":[{"allow":"GET https://a.example","limits":{"per_day":9}},{"allow":"POST https://a.example","limits":{"per_day":9}}]}`, "at most 9 a day"},
		{"gone beside one without", `{"http":[` + limited + `,"https://*.a.example",` + all + `]}`, `{"http":[` + all + `]}`, "https://a.example"},
		{"a part of a path", `{"http":[{"allow":"https://a.example/mail","limits":{"per_call":1}},` + all + `]}`, `{"http":[` + all + `]}`, "/mail"},
		{"other methods", `{"http":[{"allow":"POST https://a.example","limits":{"per_call":1}},"GET https://a.example"]}`, `{"http":["GET https://a.example"]}`, ""},
		{"another order", `{"http":[` + limited + `,"https://a.example/x"]}`, `{"http":["https://a.example/x",` + limited + `]}`, ""},
		{"tools of one server", `{"tools":[{"name":"github.*","limits":{"per_day":9}}]}`,
			`{"tools":[{"name":"github.a","limits":{"per_day":9}},{"name":"github.b","limits":{"per_day":9}}]}`, "github.*"},
		{"a tool of a server", `{"tools":["github.*",{"name":"github.write","limits":{"per_day":1}}]}`, `{"tools":["github.*"]}`, "github.write"},
		{"another agent", `{"agents":[{"name":"b","limits":{"per_call":1}},"c"]}`, `{"agents":["c"]}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := readGrants(t, tt.now).Loosened(readGrants(t, tt.old))
			if (tt.want == "") != (len(got) == 0) || len(got) > 1 || !strings.Contains(strings.Join(got, ""), tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestNamedGrantHas(t *testing.T) {
	for name, want := range map[string]bool{"github.read": true, "github.": true, "github.*": true, "githubread": false, "b": false} {
		if got := (NamedGrant{Name: "github.*"}).Has(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestQuota(t *testing.T) {
	q := Quota{Cells: 3, CPUPerDay: time.Hour}
	if d := cmp.Diff([]string{"at most 3 cells at once", "at most 1h0m0s of processor time a day"}, q.Words()); d != "" {
		t.Error(d)
	}
	for _, tt := range []struct {
		old, now Quota
		want     string
	}{
		{Quota{}, q, ""}, {q, q, ""}, {q, Quota{Cells: 2, CPUPerDay: 1, BytesPerDay: 9}, ""},
		{q, Quota{Cells: 4, CPUPerDay: time.Hour}, "at most 4 cells at once"}, {q, Quota{Cells: 3}, "no bound of cpu_per_day"},
	} {
		if got := strings.Join(tt.now.Beyond(tt.old), ";"); got != tt.want {
			t.Errorf("%+v beyond %+v: %q, want %q", tt.now, tt.old, got, tt.want)
		}
	}
	if err := (Quota{BytesPerDay: -1}).Check(); KindOf(err) != Invalid || !strings.Contains(err.Error(), "quota.bytes_per_day") {
		t.Error(err)
	}
	for weight, ok := range map[int]bool{0: false, MinWeight: true, MaxWeight: true, MaxWeight + 1: false} {
		if err := (&AppInfo{Name: "a", Weight: weight}).Check(); (err == nil) != ok {
			t.Errorf("weight %d: %v", weight, err)
		}
	}
}

// FuzzGrants: grants that pass their check read as the same after they were written, are covered by themselves and by nothing less.
func FuzzGrants(f *testing.F) {
	f.Add(`{"http":["GET https://a.example/**",{"allow":"http://*:*","limits":{"per_day":1}}],"secrets":["k"],"agents":["b","a"],"tools":["x.*"],"state":{"keys":1}}`)
	f.Add(`{"secrets":[{"name":"k","to":["https://a.example"],"limits":{"per_call":2}}],"models":[{"name":"@m"}]}`)
	f.Fuzz(func(t *testing.T, s string) {
		var g Grants
		if json.Unmarshal([]byte(s), &g) != nil || g.Check() != nil {
			return
		}
		b, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		again := readGrants(t, string(b))
		if err := again.Check(); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		c, err := json.Marshal(again)
		if err != nil || string(b) != string(c) {
			t.Fatalf("%s became %s: %v", b, c, err)
		}
		if more := g.Beyond(again); more != nil {
			t.Fatalf("%s goes beyond itself: %q", b, more)
		}
		if less, err := g.Without(g); err != nil || !less.Empty() {
			t.Fatalf("%s without itself is %+v: %v", b, less, err)
		}
		if len(g.Beyond(Grants{})) != len(g.Words()) {
			t.Fatalf("%s: not all of it is beyond nothing", b)
		}
	})
}
