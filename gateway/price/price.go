// Package price says what calls of models cost, by the prices that vendors publish.
//
// The prices are those of genai-prices (https://github.com/pydantic/genai-prices, MIT, see LICENSE.genai-prices), which data/extract.mjs takes out
// of its npm package. They are evaluated here as there: a provider by its name or base URL, a model by rules about its name, prices by date and
// time of day, tiers by the length of the prompt, and each token once, by the most special price that there is for it.
//
// Amounts are integers. Prices are kept in billionths of a dollar for a million units, and multiplied with counts without loss; the sum is rounded
// once, half up, to micro-units.
package price

import (
	"bytes"
	"cmp"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Query is a call whose cost is asked for.
type Query struct {
	Vendor    string // name in the table; by URL unless set
	URL       string // base URL of the provider
	Name      string // of the provider: where neither tells, it is a vendor's when it is spelled as in the table
	Model     string // as the provider knows it
	Tokens    agent.ModelTokens
	Time      time.Time // when the call was made: prices change, and some depend on the time of day
	Tier      string    // service tier that the provider told; "" for the usual one
	Overrides []agent.ModelPrice
}

// Operator is what stands for the version of the table where a price of Query.Overrides was used.
const Operator = "operator"

// Table holds what models cost. What it says does not change, and it may be used at once.
type Table struct {
	version string
	vendors []vendor

	mu    sync.RWMutex
	known map[asked]*model // what was found, which takes many patterns; nil for what is not in the table
}

// asked is what of a Query finds a model.
type asked struct{ vendor, url, name, model string }

// What a table keeps of what was found: at most maxKnown models, asked for by names of at most maxName bytes.
const (
	maxKnown = 4096
	maxName  = 256
)

//go:embed prices.json.gz
var shipped []byte

// Shipped returns the table that this build has.
var Shipped = sync.OnceValue(func() *Table {
	t, err := load(shipped)
	if err != nil {
		panic(err) // a test loads it
	}
	return t
})

// Version names the table, such as in a usage event.
func (t *Table) Version() string { return t.version }

// VersionOf names where the price of a call comes from: the table, or Operator.
func (t *Table) VersionOf(q Query) string {
	if override(&q) != nil {
		return Operator
	}
	return t.version
}

// Vendors lists the names in the table.
func (t *Table) Vendors() (names []string) {
	for _, v := range t.vendors {
		names = append(names, v.ID)
	}
	return names
}

// Cost returns what a call costs in micro-units, which are millionths of a dollar; nil when that is not known: because nobody knows the model, it was
// served in a tier of its own price, or used what has no price. An error, with nil, says that the counts cannot be.
func (t *Table) Cost(q Query) (micro *int64, err error) {
	if err := check(&q.Tokens); err != nil {
		return nil, err
	}
	if p := override(&q); p != nil {
		return p.cost(&q.Tokens), nil
	}
	switch strings.ToLower(q.Tier) {
	case "", "default", "standard", "auto", "on_demand":
	default:
		return nil, nil
	}
	m := t.find(&q)
	if m == nil {
		return nil, nil
	}
	return m.at(q.Time.UTC()).cost(&q.Tokens), nil
}

// find finds the model that is asked, or nil.
func (t *Table) find(q *Query) *model {
	k := asked{q.Vendor, q.URL, q.Name, q.Model}
	t.mu.RLock()
	m, ok := t.known[k]
	t.mu.RUnlock()
	if ok {
		return m
	}
	if v := t.vendor(q); v != nil {
		m = t.model(v, strings.TrimSpace(strings.ToLower(q.Model)))
	}
	if len(q.Model) > maxName {
		return m
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil || len(t.known) >= maxKnown {
		t.known = map[asked]*model{}
	}
	k.model = strings.Clone(k.model) // it may be of a client's request
	t.known[k] = m
	return m
}

// check returns an error unless the counts can be.
func check(t *agent.ModelTokens) error {
	for _, n := range []int64{t.Input, t.CacheRead, t.CacheWrite, t.CacheWrite1h, t.AudioIn, t.Output, t.Reasoning, t.AudioOut, t.Searches} {
		if n < 0 || n > math.MaxInt64/16 {
			return agent.Errorf(agent.Invalid, "%d tokens cannot be", n)
		}
	}
	if t.Searches > math.MaxInt64/1000 {
		return agent.Errorf(agent.Invalid, "%d searches cannot be", t.Searches)
	}
	if parts := t.CacheRead + t.CacheWrite + t.CacheWrite1h + t.AudioIn; parts > t.Input {
		return agent.Errorf(agent.Invalid, "%d tokens of input cannot have parts of %d", t.Input, parts)
	}
	if parts := t.Reasoning + t.AudioOut; parts > t.Output {
		return agent.Errorf(agent.Invalid, "%d tokens of output cannot have parts of %d", t.Output, parts)
	}
	return nil
}

// total adds up counts times prices in 128 bits.
type total struct{ hi, lo uint64 }

func (t *total) add(n, price int64) {
	hi, lo := bits.Mul64(uint64(n), uint64(price))
	var carry uint64
	t.lo, carry = bits.Add64(t.lo, lo, 0)
	t.hi, _ = bits.Add64(t.hi, hi, carry)
}

// over returns the total divided by d, rounded half up; the greatest number when it is more than that.
func (t total) over(d uint64) *int64 {
	lo, carry := bits.Add64(t.lo, d/2, 0)
	hi := t.hi + carry
	out := int64(math.MaxInt64)
	if hi < d {
		if q, _ := bits.Div64(hi, lo, d); q <= math.MaxInt64 {
			out = int64(q)
		}
	}
	return &out
}

// operatorPrice is a price of the operator's, in micro-units for a million tokens.
type operatorPrice struct{ agent.ModelPrice }

func override(q *Query) *operatorPrice {
	for _, p := range q.Overrides {
		if agent.Glob(p.Model, q.Model) {
			return &operatorPrice{p}
		}
	}
	return nil
}

func (p *operatorPrice) cost(t *agent.ModelTokens) *int64 {
	read, write := p.Input, p.Input
	if p.CacheRead != nil {
		read = *p.CacheRead
	}
	if p.CacheWrite != nil {
		write = *p.CacheWrite
	}
	var sum total
	sum.add(t.Input-t.CacheRead-t.CacheWrite-t.CacheWrite1h, max(p.Input, 0))
	sum.add(t.CacheRead, max(read, 0))
	sum.add(t.CacheWrite+t.CacheWrite1h, max(write, 0))
	sum.add(t.Output, max(p.Output, 0))
	return sum.over(1_000_000)
}

// vendor finds who is asked.
func (t *Table) vendor(q *Query) *vendor {
	if q.Vendor != "" {
		name := strings.TrimSpace(strings.ToLower(q.Vendor))
		if v := t.named(name); v != nil {
			return v
		}
		return t.first(func(v *vendor) bool { return v.Provider.says(name) })
	}
	if q.URL != "" {
		if v := t.first(func(v *vendor) bool { return v.api.MatchString(q.URL) }); v != nil {
			return v
		}
	}
	return t.named(q.Name)
}

func (t *Table) named(id string) *vendor {
	return t.first(func(v *vendor) bool { return v.ID == id })
}

func (t *Table) first(is func(*vendor) bool) *vendor {
	for i := range t.vendors {
		if is(&t.vendors[i]) {
			return &t.vendors[i]
		}
	}
	return nil
}

// model finds a model by its name, which is in small letters, else by the name with a date as 2026-01-31 where it is written as 20260131.
func (t *Table) model(v *vendor, name string) *model {
	if m := t.modelNamed(v, name, true); m != nil {
		return m
	}
	if dated := datedName(name); dated != name {
		return t.modelNamed(v, dated, true)
	}
	return nil
}

func (t *Table) modelNamed(v *vendor, name string, further bool) *model {
	for i := range v.Models {
		if v.Models[i].Match.says(name) {
			return &v.Models[i]
		}
	}
	if further {
		for _, id := range v.Fallback {
			if other := t.named(id); other != nil {
				if m := t.modelNamed(other, name, false); m != nil {
					return m
				}
			}
		}
	}
	return nil
}

var datePart = regexp.MustCompile(`-20\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])`)

func datedName(name string) string {
	var out strings.Builder
	from := 0
	for _, at := range datePart.FindAllStringIndex(name, -1) {
		if at[1] < len(name) && name[at[1]] != '-' && name[at[1]] != ':' {
			continue
		}
		if date, err := time.Parse("-20060102", name[at[0]:at[1]]); err == nil {
			out.WriteString(name[from:at[0]])
			out.WriteString(date.Format("-2006-01-02"))
			from = at[1]
		}
	}
	out.WriteString(name[from:])
	return out.String()
}

// at returns the prices at a time.
func (m *model) at(t time.Time) *prices {
	second := t.Sub(time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC))
	for i := range slices.Backward(m.Prices) {
		p := &m.Prices[i]
		switch {
		case p.From != "":
			if !t.Before(p.from) {
				return &p.Prices
			}
		case p.Start != "":
			in := second >= p.start && second < p.end
			if p.end < p.start {
				in = second >= p.start || second < p.end
			}
			if in {
				return &p.Prices
			}
		default:
			return &p.Prices
		}
	}
	return &m.Prices[0].Prices
}

// cost is nil when the model is not paid for by what is counted here.
func (p *prices) cost(t *agent.ModelTokens) *int64 {
	if !p.counted || t.Searches > 0 && p.of[searches] == nil || t.Output > 0 && p.picturesOut {
		return nil
	}
	used := [...]int64{
		input: t.Input, cacheRead: t.CacheRead, cacheWrite: t.CacheWrite + t.CacheWrite1h, cacheWrite1h: t.CacheWrite1h, audioIn: t.AudioIn,
		output: t.Output, reasoning: t.Reasoning, audioOut: t.AudioOut, searches: t.Searches * 1000, requests: 1000, // these are for a thousand
	}
	var sum total
	for u := range units {
		if p.of[u] == nil {
			continue
		}
		n := used[u]
		for v := range units { // what has a price of its own is not paid for twice
			if p.of[v] != nil && nearest(p, v) == u {
				n -= used[v]
			}
		}
		sum.add(max(n, 0), p.of[u].at(t.Input))
	}
	return sum.over(1_000_000_000)
}

// nearest returns the unit with a price that has v as a part, or -1.
func nearest(p *prices, v unit) unit {
	for u := within[v]; u >= 0; u = within[u] {
		if p.of[u] != nil {
			return u
		}
	}
	return -1
}

// unit is what has a price.
type unit int

const (
	input unit = iota
	cacheRead
	cacheWrite
	cacheWrite1h
	audioIn
	output
	reasoning
	audioOut
	searches
	requests
	units
)

var unitNames = [units]string{
	"input_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok", "input_audio_mtok", "output_mtok", "output_reasoning_mtok",
	"output_audio_mtok", "web_searches_kcount", "requests_kcount",
}

// within says which unit one is a part of.
var within = [units]unit{
	input: -1, cacheRead: input, cacheWrite: input, cacheWrite1h: cacheWrite, audioIn: input, output: -1, reasoning: output, audioOut: output,
	searches: -1, requests: -1,
}

// The table as it is shipped.
type (
	vendor struct {
		ID       string   `json:"id"`
		API      string   `json:"api"`
		Provider *rule    `json:"provider"`
		Fallback []string `json:"fallback"`
		Models   []model  `json:"models"`
		api      *regexp.Regexp
	}
	model struct {
		ID     string  `json:"id"`
		Match  *rule   `json:"match"`
		Prices []dated `json:"prices"`
	}
	// dated are prices from a date on, or at a time of day in UTC; the last in a list that holds is the one.
	dated struct {
		From   string `json:"from"`
		Start  string `json:"start"`
		End    string `json:"end"`
		Prices prices `json:"prices"`

		from       time.Time
		start, end time.Duration
	}
	prices struct {
		of          [units]*tiers
		counted     bool // tokens or requests have a price
		picturesOut bool // pictures in the output have a price of their own, and nobody tells how many tokens they are
	}
	// tiers is a price that may depend on how long the prompt is.
	tiers struct {
		base  int64
		above []tier
	}
	tier struct{ start, price int64 }
)

func (p *tiers) at(input int64) int64 {
	price := p.base
	for _, t := range p.above {
		if input > t.start {
			price = t.price
		}
	}
	return price
}

// load reads a table.
func load(packed []byte) (*Table, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("read prices: %w", err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("read prices: %w", err)
	}
	var all struct {
		Version   string   `json:"version"`
		Providers []vendor `json:"providers"`
	}
	if err := json.Unmarshal(plain, &all); err != nil {
		return nil, fmt.Errorf("read prices: %w", err)
	}
	for i := range all.Providers {
		v := &all.Providers[i]
		if v.api, err = regexp.Compile("^(?:" + v.API + ")"); err != nil {
			return nil, fmt.Errorf("read prices of %s: %w", v.ID, err)
		}
		for _, m := range v.Models {
			if len(m.Prices) == 0 {
				return nil, fmt.Errorf("read prices of %s/%s: there are none", v.ID, m.ID)
			}
			for k := range m.Prices {
				if err := m.Prices[k].parse(); err != nil {
					return nil, fmt.Errorf("read prices of %s/%s: %w", v.ID, m.ID, err)
				}
			}
		}
	}
	return &Table{version: all.Version, vendors: all.Providers}, nil
}

func (d *dated) parse() (err error) {
	if d.From != "" {
		d.from, err = time.Parse(time.DateOnly, d.From)
		return err
	}
	if d.Start != "" {
		if d.start, err = timeOfDay(d.Start); err == nil {
			d.end, err = timeOfDay(d.End)
		}
	}
	return err
}

func timeOfDay(s string) (time.Duration, error) {
	t, err := time.Parse("2006-01-02T15:04:05Z07:00", "2000-01-02T"+s)
	if err != nil {
		return 0, err
	}
	t = t.UTC()
	return t.Sub(time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)), nil
}

// UnmarshalJSON reads prices by their names. Those of what is not counted here are passed over, but see picturesOut.
func (p *prices) UnmarshalJSON(b []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	_, image := all["output_image_mtok"]
	_, video := all["output_video_mtok"]
	p.picturesOut = image || video
	for name, raw := range all {
		u := slices.Index(unitNames[:], name)
		if u < 0 {
			continue
		}
		t, err := readTiers(raw)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		p.of[u] = t
		p.counted = p.counted || unit(u) != searches
	}
	return nil
}

func readTiers(raw json.RawMessage) (*tiers, error) {
	if len(raw) == 0 || raw[0] != '{' {
		base, err := nano(string(raw))
		return &tiers{base: base}, err
	}
	var v struct {
		Base  json.Number `json:"base"`
		Tiers []struct {
			Start int64       `json:"start"`
			Price json.Number `json:"price"`
		} `json:"tiers"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	base, err := nano(v.Base.String())
	t := &tiers{base: base}
	for _, x := range v.Tiers {
		price, e := nano(x.Price.String())
		err = cmp.Or(err, e)
		t.above = append(t.above, tier{x.Start, price})
	}
	slices.SortFunc(t.above, func(a, b tier) int { return cmp.Compare(a.start, b.start) })
	return t, err
}

// nano reads dollars as billionths of a dollar.
func nano(s string) (int64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < 0 || f > 1e9 {
		return 0, fmt.Errorf("%q is not a price", s)
	}
	return int64(math.Round(f * 1e9)), nil
}
