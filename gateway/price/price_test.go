package price

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

var day = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

func n(v int64) *int64 { return &v }

func costOf(t *testing.T, q Query) *int64 {
	t.Helper()
	micro, err := Shipped().Cost(q)
	if err != nil {
		t.Fatal(err)
	}
	return micro
}

func TestShipped(t *testing.T) {
	s := Shipped()
	if !regexp.MustCompile(`^genai-prices \d+\.\d+\.\d+$`).MatchString(s.Version()) || len(s.Vendors()) < 30 {
		t.Errorf("version %q, %d vendors", s.Version(), len(s.Vendors()))
	}
	if _, err := os.Stat("LICENSE.genai-prices"); err != nil {
		t.Error(err)
	}
}

// A price that is not known is nil, and never 0.
func TestUnknown(t *testing.T) {
	some := agent.ModelTokens{Input: 1000, Output: 1000}
	known := Query{Vendor: "openai", Model: "gpt-4o", Tokens: some, Time: day}
	if m := costOf(t, known); m == nil || *m != 12_500 { // 2.50 and 10 dollars for a million
		t.Fatalf("gpt-4o: %v", m)
	}
	for what, change := range map[string]func(*Query){
		"another model":  func(q *Query) { q.Model = "no-such-model" },
		"another vendor": func(q *Query) { q.Vendor = "nobody" },
		"no vendor":      func(q *Query) { q.Vendor = "" },
		"another address": func(q *Query) {
			q.Vendor, q.URL = "", "http://127.0.0.1:11434/v1"
		},
		"an address like a vendor's": func(q *Query) { q.Vendor, q.URL = "", "http://x/https://api.openai.com" },
		"a tier":                     func(q *Query) { q.Tier = "priority" },
		"a search without a price":   func(q *Query) { q.Model, q.Tokens.Searches = "gpt-3.5-turbo", 1 },
		"pictures":                   func(q *Query) { q.Vendor, q.Model = "google", "gemini-2.5-flash-image" },
		"what is paid by the hour":   func(q *Query) { q.Vendor, q.Model = "groq", "whisper-large-v3" },
	} {
		q := known
		change(&q)
		if m := costOf(t, q); m != nil {
			t.Errorf("%s costs %d", what, *m)
		}
	}
	for what, same := range map[string]func(*Query){
		"by URL": func(q *Query) { q.Vendor, q.URL = "", "https://api.openai.com/v1" },
		"by URL, whatever it is called": func(q *Query) {
			q.Vendor, q.URL, q.Name = "", "https://api.openai.com/v1", "anthropic"
		},
		"by name": func(q *Query) { q.Vendor, q.URL, q.Name = "", "https://proxy.example/v1", "openai" },
		"a tier":  func(q *Query) { q.Tier = "default" },
		"letters": func(q *Query) { q.Vendor, q.Model = " OpenAI", "GPT-4o " },
	} {
		q := known
		same(&q)
		if m := costOf(t, q); m == nil || *m != 12_500 {
			t.Errorf("%s: %v", what, m)
		}
	}
	if m := costOf(t, Query{Vendor: "openai", Model: "gpt-4o", Time: day}); m == nil || *m != 0 {
		t.Errorf("nothing of a known model: %v", m)
	}
}

func TestImpossible(t *testing.T) {
	for _, tokens := range []agent.ModelTokens{
		{Input: -1}, {Input: 5, CacheRead: 6}, {Input: 5, CacheRead: 3, AudioIn: 3}, {Output: 3, Reasoning: 4}, {Input: math.MaxInt64}, {Searches: -1}, {Searches: math.MaxInt64 / 500},
	} {
		m, err := Shipped().Cost(Query{Vendor: "openai", Model: "gpt-4o", Tokens: tokens, Time: day})
		if m != nil || agent.KindOf(err) != agent.Invalid {
			t.Errorf("%+v: %v, %v", tokens, m, err)
		}
	}
}

func TestOperator(t *testing.T) {
	prices := []agent.ModelPrice{
		{Model: "big*", Input: 3_000_000, Output: 15_000_000, CacheRead: n(300_000), CacheWrite: n(3_750_000)}, {Model: "*", Input: 1, Output: 0},
	}
	q := Query{Vendor: "openai", Model: "big-1", Time: day, Overrides: prices, Tier: "priority"}
	for _, c := range []struct {
		model  string
		tokens agent.ModelTokens
		want   int64
	}{
		{"big-1", agent.ModelTokens{Input: 1000, CacheRead: 400, CacheWrite: 100, CacheWrite1h: 100, Output: 10}, 400*3 + 120 + 200*3.75 + 150},
		{"gpt-4o", agent.ModelTokens{Input: 499_999, Output: 9}, 0}, // half a micro-unit is rounded up, less is not
		{"gpt-4o", agent.ModelTokens{Input: 500_000, Output: 9}, 1},
		{"gpt-4o", agent.ModelTokens{Input: 1_499_999}, 1},
		{"big", agent.ModelTokens{Input: math.MaxInt64 / 16}, math.MaxInt64 / 16 * 3},
	} {
		q.Model, q.Tokens = c.model, c.tokens
		if m := costOf(t, q); m == nil || *m != c.want {
			t.Errorf("%s %+v: %v, not %d", c.model, c.tokens, m, c.want)
		}
		if v := Shipped().VersionOf(q); v != Operator {
			t.Error(v)
		}
	}
	q.Overrides = prices[:1]
	if q.Model = "gpt-4o"; Shipped().VersionOf(q) != Shipped().Version() {
		t.Error(Shipped().VersionOf(q))
	}
	q.Model, q.Overrides, q.Tokens = "big", []agent.ModelPrice{{Model: "*", Input: math.MaxInt64}}, agent.ModelTokens{Input: math.MaxInt64 / 16}
	if m := costOf(t, q); *m != math.MaxInt64 {
		t.Errorf("too much is %d", *m)
	}
}

// The cost is what the package that the data comes from says, for each model that there is, and names like theirs.
func TestLikeThePackage(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node")
	}
	if _, err := os.Stat("data/node_modules"); err != nil {
		t.Skip("run npm ci in gateway/price/data")
	}
	rng := rand.New(rand.NewPCG(7, 7))
	var queries []Query
	var in bytes.Buffer
	enc := json.NewEncoder(&in)
	table := Shipped()
	for i := range table.vendors {
		v := &table.vendors[i]
		for _, m := range v.Models {
			for range 4 {
				q := Query{Vendor: v.ID, Model: nameLike(rng, &m), Time: timeLike(rng, &m)}
				if rng.IntN(5) == 0 {
					q.Vendor, q.URL = "", urlLike(v)
				}
				q.Tokens = tokensLike(rng)
				u := q.Tokens
				queries = append(queries, q)
				if err := enc.Encode(map[string]any{
					"vendor": q.Vendor, "url": q.URL, "model": q.Model, "time": q.Time.Format(time.RFC3339Nano),
					"usage": map[string]int64{
						"input_tokens": u.Input, "cache_read_tokens": u.CacheRead, "cache_write_tokens": u.CacheWrite + u.CacheWrite1h,
						"cache_write_1h_tokens": u.CacheWrite1h, "input_audio_tokens": u.AudioIn, "output_tokens": u.Output,
						"output_reasoning_tokens": u.Reasoning, "output_audio_tokens": u.AudioOut, "web_searches": u.Searches,
					},
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), node, "oracle.mjs")
	cmd.Dir, cmd.Stdin, cmd.Stderr = "data", &in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(queries) {
		t.Fatalf("%d answers to %d queries", len(lines), len(queries))
	}
	same, unknown, ours := 0, 0, 0
	for i, q := range queries {
		var want *float64
		if err := json.Unmarshal([]byte(lines[i]), &want); err != nil {
			t.Fatal(err)
		}
		got := costOf(t, q)
		switch {
		case want == nil && got == nil:
			unknown++
		case want == nil:
			t.Errorf("%+v costs %d, and is not known there", q, *got)
		case got == nil:
			ours++
			v := table.vendor(&q)
			if v == nil {
				t.Errorf("%+v is not known, and costs %v there", q, *want)
				continue
			}
			p := table.model(v, strings.ToLower(q.Model)).at(q.Time)
			if p.counted && !p.picturesOut && (q.Tokens.Searches == 0 || p.of[searches] != nil) {
				t.Errorf("%+v is not known, and costs %v there", q, *want)
			}
		default:
			same++
			// What they say is a sum of floating point; some prices have more digits than a billionth of a dollar.
			if micro := *want * 1e6; math.Abs(float64(*got)-micro) > 0.5+micro*1e-8 {
				t.Errorf("%+v costs %d, and %v there", q, *got, micro)
			}
		}
	}
	t.Logf("%d alike, %d known to neither, %d that are told only there because a part has no price here", same, unknown, ours)
	if same < 4000 {
		t.Errorf("only %d are alike", same)
	}
}

func tokensLike(rng *rand.Rand) (u agent.ModelTokens) {
	some := func(most int64) int64 {
		if most == 0 || rng.IntN(3) == 0 {
			return 0
		}
		return rng.Int64N(most + 1)
	}
	u.Input = some([]int64{100, 40_000, 260_000, 2_000_000}[rng.IntN(4)])
	left := u.Input
	for _, part := range []*int64{&u.CacheRead, &u.CacheWrite, &u.CacheWrite1h, &u.AudioIn} {
		*part = some(left)
		left -= *part
	}
	u.Output = some(20_000)
	u.Reasoning = some(u.Output)
	u.AudioOut = some(u.Output - u.Reasoning)
	if rng.IntN(6) == 0 {
		u.Searches = 1 + rng.Int64N(9)
	}
	return u
}

// nameLike returns a name that the model's rule may be about.
func nameLike(rng *rand.Rand, m *model) string {
	name := m.ID
	for r := m.Match; r != nil && rng.IntN(4) > 0; {
		switch r.kind {
		case ruleOr, ruleAnd:
			list := append(r.or, r.and...)
			r = list[rng.IntN(len(list))]
			continue
		case ruleEquals:
			name = r.equals
		case ruleStarts:
			name = r.starts + []string{"", "-x", "-20260131", "-20260231", "-2026-01-31"}[rng.IntN(5)]
		case ruleEnds:
			name = "x/" + r.ends
		case ruleContains:
			name = "x" + r.contains + "y"
		}
		break
	}
	switch rng.IntN(8) {
	case 0:
		name = strings.ToUpper(name)
	case 1:
		name += []string{"-20250514", "-20250514:x", "-2025-05-14", "-tts", "-latest"}[rng.IntN(5)]
	}
	return name
}

// timeLike returns a time at which the model's price may change.
func timeLike(rng *rand.Rand, m *model) time.Time {
	at := day.Add(time.Duration(rng.Int64N(int64(400*24*time.Hour))) - 200*24*time.Hour).Truncate(time.Millisecond)
	p := m.Prices[rng.IntN(len(m.Prices))]
	near := []time.Duration{-time.Millisecond, 0, time.Millisecond}[rng.IntN(3)]
	switch {
	case p.From != "":
		at = p.from.Add(near)
	case p.Start != "":
		at = at.Truncate(24 * time.Hour).Add([]time.Duration{p.start, p.end}[rng.IntN(2)] + near)
	}
	return at
}

// urlLike returns an address of a vendor's.
func urlLike(v *vendor) string {
	for _, url := range []string{
		"https://api.openai.com/v1", "https://api.anthropic.com", "https://generativelanguage.googleapis.com", "https://openrouter.ai/api/v1",
		"https://api.groq.com/openai/v1", "https://api.mistral.ai/v1", "https://api.deepseek.com", "https://api.x.ai/v1", "https://api.together.xyz/v1",
		"https://me.openai.azure.com/openai", "https://bedrock-runtime.us-east-1.amazonaws.com",
	} {
		if v.api.MatchString(url) {
			return url
		}
	}
	return "https://unknown.example/v1"
}

// What was found is kept for the next call, but not of whoever asks for ever more models.
func TestKept(t *testing.T) {
	table, err := load(shipped)
	if err != nil {
		t.Fatal(err)
	}
	q := Query{Vendor: "openai", Model: "gpt-4o", Tokens: agent.ModelTokens{Input: 1000}, Time: day}
	long := q
	long.Model += strings.Repeat(" ", maxName)
	var wg sync.WaitGroup
	for _, ask := range []Query{q, long, q, long} {
		wg.Go(func() {
			if m, err := table.Cost(ask); err != nil || m == nil || *m != 2500 {
				t.Errorf("%.10q: %v, %v", ask.Model, m, err)
			}
		})
	}
	wg.Wait()
	if len(table.known) != 1 {
		t.Errorf("it keeps %d models, not 1", len(table.known))
	}
	for i := range maxKnown + 1 {
		other := q
		other.Model = fmt.Sprint("no-such-", i)
		if m, err := table.Cost(other); err != nil || m != nil {
			t.Fatalf("%s: %v, %v", other.Model, m, err)
		}
	}
	if n := len(table.known); n == 0 || n > maxKnown {
		t.Errorf("it keeps %d models", n)
	}
}

func BenchmarkCost(b *testing.B) {
	q := Query{URL: "https://api.anthropic.com", Model: "claude-sonnet-4-20250514", Tokens: agent.ModelTokens{Input: 5000, CacheRead: 300, Output: 80}, Time: day}
	for b.Loop() {
		if _, err := Shipped().Cost(q); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := load(shipped); err != nil {
			b.Fatal(err)
		}
	}
}
