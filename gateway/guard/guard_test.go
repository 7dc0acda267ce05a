package guard_test

import (
	"encoding/json"
	"path"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/guard"
	"github.com/skep-dev/skep/gateway/wire"
)

func pick(t testing.TB, list ...agent.Guardrail) *guard.Guard {
	t.Helper()
	for i := range list {
		list[i].Prompt, list[i].Response = true, true
		if list[i].Name == "" {
			list[i].Name = "g"
		}
	}
	s, err := guard.New(list)
	if err != nil {
		t.Fatal(err)
	}
	return s.Pick(true, "", nil, nil)
}

func find(names ...string) agent.Guardrail { return agent.Guardrail{Find: names} }

const (
	jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
	pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA04up8hoqzS1+\nAPIB0RhjXyObwHQnOzhk\n-----END RSA PRIVATE KEY-----"
)

// finds is what each finder makes of a text.
var finds = []struct{ find, in, want string }{
	{"email", "write to ann.o'neil+x@mail.example.org.", "write to [email]."},
	{"email", "zoë@bücher.example, @ann, a@b, x@y.z", "[email], @ann, a@b, x@y.z"},
	{"card", "pay 4111 1111 1111 1111 now", "pay [card] now"},
	{"card", "4111-1111-1111-1111,378282246310005;5555555555554444", "[card],[card];[card]"},
	{"card", "4111 1111 1111 1112 and 41111111111111111111111", "4111 1111 1111 1112 and 41111111111111111111111"},
	{"iban", "to DE89 3704 0044 0532 0130 00 please", "to [iban] please"},
	{"iban", "GB82WEST12345698765432 DE88370400440532013000", "[iban] DE88370400440532013000"},
	{"phone", "call +49 (30) 901820 or 555-123-4567, (030) 901-820", "call [phone] or [phone], [phone]"},
	{"phone", "in 2024-11-30, 12345678, 1.5+2", "in 2024-11-30, 12345678, 1.5+2"},
	{"ip", "from 192.168.0.1, 2001:db8::1 and fe80::1.", "from [ip], [ip] and [ip]."},
	{"ip", "at 12:30:45, version 1.2.3.4.5, 999.1.1.1, std::abs", "at 12:30:45, version 1.2.3.4.5, 999.1.1.1, std::abs"},
	{"key", "sk-abcdefghij0123456789 AKIAABCDEFGHIJKLMNOP ghp_0123456789abcdefghijABCDEFGHIJ456789", "[key] [key] [key]"},
	{"key", "task-abcdefghij0123456789, sk-short", "task-abcdefghij0123456789, sk-short"},
	{"jwt", "token " + jwt + "!", "token [jwt]!"},
	{"private_key", "a " + pem + " b", "a [private_key] b"},
	{"private_key", "a -----BEGIN PRIVATE KEY-----\nMIIE", "a [private_key]"},
	{"private_key", "-----BEGIN CERTIFICATE-----\nMIIE", "-----BEGIN CERTIFICATE-----\nMIIE"},
}

func TestFinders(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range finds {
		seen[c.find] = true
		got, blocked := pick(t, find(c.find)).Text(c.in)
		if got != c.want || blocked != nil {
			t.Errorf("%s: %q became %q, %v, not %q", c.find, c.in, got, blocked, c.want)
		}
	}
	for _, name := range agent.GuardFinders() {
		if !seen[name] {
			t.Errorf("%s is not tested", name)
		}
	}
}

func TestWordsAndPatterns(t *testing.T) {
	g := pick(t, agent.Guardrail{Name: "project", Words: []string{"Bluebird", "blue bird", "Straße"}}, agent.Guardrail{Name: "order", Patterns: []string{`\bON-\d{4}\b`}})
	in := "BLUEBIRD bluebirds Blue Bird; STRASSE straße ON-1234 XON-1234 ON-12345"
	want := "[project] bluebirds [project]; STRASSE [project] [order] XON-1234 ON-12345"
	if got, _ := g.Text(in); got != want {
		t.Errorf("got %q, not %q", got, want)
	}
}

// stream gives text to a stream in pieces of so many bytes.
func stream(g *guard.Guard, text string, size int) (string, *guard.Found) {
	s := g.Stream()
	var b strings.Builder
	take := func(e wire.Event) *guard.Found {
		out, found := s.Events([]wire.Event{e})
		for _, e := range out {
			if e.Kind == wire.PartDelta {
				b.WriteString(e.Text)
			}
		}
		return found
	}
	if f := take(wire.Event{Kind: wire.PartBegin}); f != nil {
		return b.String(), f
	}
	for len(text) > 0 {
		n := min(size, len(text))
		if f := take(wire.Event{Kind: wire.PartDelta, Text: text[:n]}); f != nil {
			return b.String(), f
		}
		text = text[n:]
	}
	f := take(wire.Event{Kind: wire.PartEnd})
	return b.String(), f
}

// What a stream makes of a text is what is made of it whole, wherever it is cut.
func TestStreamsAreAsWholeTexts(t *testing.T) {
	long := strings.Repeat("some words go by, as they do. ", 30)
	for _, c := range finds {
		g := pick(t, find(agent.GuardFinders()...))
		for _, in := range []string{c.in, long + c.in + " " + long} {
			want, _ := g.Text(in)
			for size := 1; size < 40; size += 3 {
				if got, f := stream(g, in, size); got != want || f != nil {
					t.Fatalf("%q in pieces of %d: %q, %v, not %q", in, size, got, f, want)
				}
			}
		}
	}
}

func TestStreamHoldsBackLittle(t *testing.T) {
	s := pick(t, find(agent.GuardFinders()...)).Stream()
	if _, f := s.Events([]wire.Event{{Kind: wire.PartBegin}}); f != nil {
		t.Fatal(f)
	}
	in, out := 0, 0
	for range 2000 {
		const piece = "Honey bees dance, and so do we, "
		in += len(piece)
		list, f := s.Events([]wire.Event{{Kind: wire.PartDelta, Text: piece}})
		if f != nil {
			t.Fatal(f)
		}
		for _, e := range list {
			out += len(e.Text)
		}
		if in-out > 400 {
			t.Fatalf("%d bytes are held back", in-out)
		}
	}
}

func TestLongTokensDoNotEndInTheClear(t *testing.T) {
	g := pick(t, find("jwt", "private_key"))
	token := "eyJhbGciOiJIUzI1NiJ9." + strings.Repeat("a", 20_000) + "." + strings.Repeat("b", 20_000)
	key := "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat("MIIE", 20_000) + "\n-----END PRIVATE KEY-----"
	for _, in := range []string{"x " + token + " y", "x " + key + " y"} {
		got, _ := stream(g, in, 1000)
		if strings.Contains(got, "bbbb") || strings.Contains(got, "aaaa") || strings.Contains(got, "MIIE") || !strings.HasPrefix(got, "x [") || !strings.HasSuffix(got, " y") {
			t.Errorf("%.60q... %.60q", got, got[max(len(got)-60, 0):])
		}
	}
}

func TestBlock(t *testing.T) {
	g := pick(t, agent.Guardrail{Name: "no-mail", Find: []string{"email"}, Block: true}, find("card"))
	in := strings.Repeat("words before. ", 40) + "ann@example.org and more"
	if _, f := g.Text(in); f == nil || f.Guardrail != "no-mail" || f.As != "email" {
		t.Errorf("found %v", f)
	}
	got, f := stream(g, in, 3)
	if f == nil || strings.Contains(got, "ann") {
		t.Errorf("%v after %q", f, got)
	}
	if _, f := stream(g, "4111 1111 1111 1111", 3); f != nil {
		t.Error(f)
	}
}

func TestArgumentsInStreams(t *testing.T) {
	g := pick(t, find("email", "card"))
	s := g.Stream()
	in := []wire.Event{{Kind: wire.PartBegin, Part: wire.Part{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "c", Name: "send"}}}}
	for _, p := range []string{`{"to":"ann`, `\u0040exam`, `ple.org","car`, `d":41111111`, `11111111,"n":7,"bob@x`, `.org":[" a@b.cd"]}`} {
		in = append(in, wire.Event{Kind: wire.PartDelta, Text: p})
	}
	in = append(in, wire.Event{Kind: wire.PartEnd})
	var c wire.Collector
	for _, e := range in {
		list, f := s.Events([]wire.Event{e})
		if f != nil {
			t.Fatal(f)
		}
		for _, e := range list {
			c.Add(e)
		}
	}
	if got, want := c.Answer().Parts[0].Call.Args, `{"to":"[email]","card":"[card]","n":7,"[email]":[" [email]"]}`; got != want {
		t.Errorf("got %s, not %s", got, want)
	}
}

func TestJSONStaysAsItIs(t *testing.T) {
	g := pick(t, find(agent.GuardFinders()...), agent.Guardrail{Name: "w", Words: []string{"user", "tool_use", "model", "text"}})
	in := ` { "model" : "m\u0061", "future" : [1.50, 1e3, null], "user":"u\/1", "messages":[
{"role":"user","content":"mail ann\u0040example.org \u00e9", "x":"\u00e9"},
{"role":"user","content":[{"type":"text","text":"bob@example.org"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AKIAABCDEFGHIJKLMNOP"}},
 {"type":"document","source":{"type":"text","media_type":"text/plain","data":"ann@example.org"}},{"type":"image_url","image_url":{"url":"data:image/png;base64,AKIAABCDEFGHIJKLMNOP"}}]},
{"role":"assistant","content":[{"type":"thinking","thinking":"ann@example.org","signature":"c2ln"},{"type":"tool_use","id":"toolu_4111111111111111","name":"send","input":{"type":"ann@example.org","n": 4111111111111111}}],
 "tool_calls":[{"id":"call_1","type":"function","function":{"name":"send","arguments":"{\"to\": \"ann\\u0040example.org\"}"}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"{\"a\":\"ann@example.org\"}"}]}],
"tools":[{"name":"text","description":"mail ann@example.org"}], "n": 4111111111111111 }`
	want := strings.NewReplacer(
		`mail ann\u0040example.org \u00e9`, `mail [email] é`, `"bob@example.org"`, `"[email]"`, `text/plain","data":"ann@example.org"`, `text/plain","data":"[email]"`,
		`{"type":"ann@example.org","n": 4111111111111111}`, `{"type":"[email]","n": "[card]"}`, `{\"to\": \"ann\\u0040example.org\"}`, `{\"to\": \"[email]\"}`,
		`{\"a\":\"ann@example.org\"}`, `{\"a\":\"[email]\"}`, `mail ann@example.org`, `mail [email]`,
	).Replace(in)
	got, f := g.JSON([]byte(in))
	if f != nil || string(got) != want {
		t.Errorf("%v\n%s\nnot\n%s", f, got, want)
	}
	same := `{"a":"nothing\u0020here"}`
	if got, _ := g.JSON([]byte(same)); string(got) != same {
		t.Errorf("%s became %s", same, got)
	}
}

// Schemas are full of names that are words of the protocols elsewhere.
func TestTextsOfSchemas(t *testing.T) {
	g := pick(t, find("email"), agent.Guardrail{Name: "w", Words: []string{"wav", "json_schema"}})
	const secret = `{"type":"object","required":["status"],"properties":{"status":{"type":"string","description":"as ann@example.org says"},"type":{"description":"ann@example.org"}}}`
	for _, in := range []string{
		`{"tools":[{"name":"f","input_schema":` + secret + `}]}`, `{"text":{"format":{"type":"json_schema","name":"f","schema":` + secret + `}}}`,
		`{"tools":[{"name":"f","input_schema":{"$defs":{"model":` + secret + `}}}]}`,
	} {
		got, f := g.JSON([]byte(in))
		if want := strings.ReplaceAll(in, "ann@example.org", "[email]"); f != nil || string(got) != want {
			t.Errorf("%v\n%s\nnot\n%s", f, got, want)
		}
	}
	same := `{"input_audio":{"data":"AAAA","format":"wav"}}`
	if got, _ := g.JSON([]byte(same)); string(got) != same {
		t.Errorf("%s became %s", same, got)
	}
}

// What objects say of themselves is read before their fields, which is not done over and over for what is nested without an end.
func TestDeepObjectsAreLookedAtWhole(t *testing.T) {
	g := pick(t, find("email"))
	thought := `{"signature":"c2ln","thinking":"ann@example.org"}`
	for depth, want := range map[int]bool{10: true, 1000: false} {
		in := strings.Repeat(`{"a":`, depth) + thought + strings.Repeat("}", depth)
		if got, f := g.JSON([]byte(in)); f != nil || strings.Contains(string(got), "ann@") != want {
			t.Errorf("at %d: %v %s", depth, f, got)
		}
	}
}

func TestTokensOfWhatWasChangedAreLeftOut(t *testing.T) {
	g := pick(t, find("email"))
	in := `{"choices":[{"message":{"content":"ann@example.org"},"logprobs":{"content":[{"token":"ann@"},{"token":"example.org"}]}}]}`
	if got, _ := g.JSON([]byte(in)); strings.Contains(string(got), "example") || !json.Valid(got) {
		t.Errorf("%s", got)
	}
	in = strings.Replace(in, "ann@", "ann", 2)
	if got, _ := g.JSON([]byte(in)); string(got) != in {
		t.Errorf("%s became %s", in, got)
	}
}

func TestPick(t *testing.T) {
	s, err := guard.New([]agent.Guardrail{
		{Name: "a", Words: []string{"alpha"}, Prompt: true, Agents: []string{"clerk-*"}},
		{Name: "m", Words: []string{"mu"}, Prompt: true, Response: true, Models: []string{"@cheap", "openai/*"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	glob := func(p, text string) bool { ok, _ := path.Match(p, text); return ok }
	for _, c := range []struct {
		prompt bool
		agent  string
		name   string
		want   string
	}{
		{true, "clerk-1", "x/y", "[a] mu"}, {true, "", "@cheap", "alpha [m]"}, {true, "clerk-1", "openai/gpt", "[a] [m]"},
		{false, "clerk-1", "openai/gpt", "alpha [m]"}, {true, "other", "x/y", "alpha mu"},
	} {
		if got, _ := s.Pick(c.prompt, c.agent, []string{c.name}, glob).Text("alpha mu"); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func FuzzStream(f *testing.F) {
	for _, c := range finds {
		f.Add(c.in, 3)
	}
	f.Fuzz(func(t *testing.T, in string, size int) {
		if size < 1 || size > 1000 || len(in) > 4<<10 {
			return
		}
		g := pick(t, find("email", "card", "iban", "key", "jwt"))
		got, found := stream(g, in, size)
		if found != nil {
			t.Fatal(found)
		}
		if again, _ := g.Text(in); again == in && got != in && len(in) < 200 {
			t.Fatalf("%q became %q in pieces of %d", in, got, size)
		}
	})
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"messages":[{"content":"ann@example.org","arguments":"{\"a\":1}"}],"n":[1,{"x":null}]}`))
	f.Add([]byte(`{"input":{"4111111111111111":4111111111111111}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if !json.Valid(b) {
			return
		}
		before := string(b)
		out, found := pick(t, find("email", "card", "phone", "ip", "key")).JSON(b)
		if found != nil || !json.Valid(out) || string(b) != before {
			t.Fatalf("%q became %q, %v", before, out, found)
		}
	})
}
