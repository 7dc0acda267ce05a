package agent

import (
	"cmp"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Bounds of records about models.
const (
	MaxProviderKeys = 64
	MaxCandidates   = 32
	MaxPatterns     = 256 // of names in a record, and of what a guardrail looks for
	MaxModelName    = 256 // bytes of a model's name
	MaxModelWindow  = 31 * 24 * time.Hour
)

// GuardFinders names what a guardrail can find without a pattern.
func GuardFinders() []string {
	return []string{"email", "card", "iban", "phone", "ip", "key", "jwt", "private_key"}
}

var headerRE = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")

// ownHeaders are those that the gateway sets itself.
var ownHeaders = []string{
	"host", "content-length", "transfer-encoding", "connection", "content-type", "cookie", "te", "trailer", "upgrade", "accept-encoding",
}

// modelRecord returns an Invalid error unless a record of that kind can be called so; its names are those that URLs and @NAME take.
func modelRecord(what, name string) error {
	if err := CheckName(what, name); err != nil {
		return err
	}
	if strings.Contains(name, "..") {
		return Errorf(Invalid, "%s name %s is not valid", what, quote(name))
	}
	return nil
}

// Check returns an Invalid error that names the field unless p can be stored.
func (p *Provider) Check() error {
	if err := modelRecord("provider", p.Name); err != nil {
		return err
	}
	if len(p.Protocols) == 0 {
		return &Error{Kind: Invalid, Msg: `field "protocols" is empty`, Hint: "say how the provider is spoken to: " + protocolList()}
	}
	for i, s := range p.Protocols {
		if s == NoProtocol || int(s) >= len(protocolNames) {
			return &Error{Kind: Invalid, Msg: `field "protocols" has one that there is not`, Hint: "use " + protocolList()}
		}
		if slices.Contains(p.Protocols[:i], s) {
			return Errorf(Invalid, `field "protocols" has %s twice`, s)
		}
	}
	if (p.URL == "") == (p.Script == "") {
		return Errorf(Invalid, "a provider has either a URL or a script")
	}
	if p.URL != "" {
		if err := checkBaseURL(p.URL); err != nil {
			return err
		}
	}
	if len(p.Keys) > MaxProviderKeys {
		return Errorf(Invalid, `field "keys" has %d keys: %d are allowed`, len(p.Keys), MaxProviderKeys)
	}
	for i, k := range p.Keys {
		if k.Secret == "" || len(k.Secret) > 200 {
			return Errorf(Invalid, `field "keys" needs the name of a secret in each key`)
		}
		if k.Weight < 0 || k.Weight > 1000 {
			return Errorf(Invalid, `field "keys": the weight of %.200q is not from 0 to 1000`, k.Secret)
		}
		if slices.ContainsFunc(p.Keys[:i], func(o ProviderKey) bool { return o.Secret == k.Secret }) {
			return Errorf(Invalid, `field "keys" has %.200q twice`, k.Secret)
		}
	}
	if p.Auth != "" && (!headerRE.MatchString(p.Auth) || slices.Contains(ownHeaders, strings.ToLower(p.Auth))) {
		return Errorf(Invalid, `field "auth": %.100q is no header that can take a key`, p.Auth)
	}
	if len(p.Header) > 64 {
		return Errorf(Invalid, `field "header" has more than 64 headers`)
	}
	for name, v := range p.Header {
		if !headerRE.MatchString(name) || slices.Contains(ownHeaders, strings.ToLower(name)) || len(v) > 4096 || strings.ContainsAny(v, "\r\n\x00") {
			return Errorf(Invalid, `field "header": %.100q cannot be sent`, name)
		}
	}
	for _, d := range []struct {
		field string
		d     time.Duration
	}{{"headers", p.Headers}, {"idle", p.Idle}} {
		if d.d < 0 || d.d > 0 && d.d < time.Millisecond || d.d > time.Hour {
			return Errorf(Invalid, "field %q is not from 1ms to 1h", d.field)
		}
	}
	for _, m := range p.Prices {
		if m.Model == "" || m.Input < 0 || m.Output < 0 || m.CacheRead != nil && *m.CacheRead < 0 || m.CacheWrite != nil && *m.CacheWrite < 0 {
			return Errorf(Invalid, `field "prices" needs a model and amounts of 0 or more in each price`)
		}
	}
	if len(p.Prices) > 4*MaxPatterns {
		return Errorf(Invalid, `field "prices" has more than %d`, 4*MaxPatterns)
	}
	return cmp.Or(checkText("vendor", p.Vendor), checkText("description", p.Description), checkPatterns("models", p.Models, 4*MaxPatterns))
}

func protocolList() string {
	var names []string
	for _, p := range Protocols() {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

func checkBaseURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || len(s) > 2048:
		return &Error{Kind: Invalid, Msg: `field "url" is not an address of a provider`, Hint: "write it as the vendor's own SDK takes it, such as https://api.openai.com/v1"}
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.HasSuffix(s, "?"):
		return Errorf(Invalid, `field "url" has more than a scheme, a host and a path; a key belongs into a secret`)
	}
	return nil
}

func checkText(field, s string) error {
	if len(s) > 1000 {
		return Errorf(Invalid, "field %q is longer than 1000 bytes", field)
	}
	return nil
}

func checkPatterns(field string, list []string, most int) error {
	if len(list) > most {
		return Errorf(Invalid, "field %q has %d names: %d are allowed", field, len(list), most)
	}
	for _, p := range list {
		if p == "" || len(p) > MaxModelName || strings.ContainsFunc(p, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return Errorf(Invalid, "field %q: %s is not a name, nor a pattern with *", field, quote(p))
		}
	}
	return nil
}

// Check returns an Invalid error that names the field unless r can be stored.
func (r *ModelRoute) Check() error {
	if err := modelRecord("route", r.Name); err != nil {
		return err
	}
	if n := len(r.Candidates); n == 0 || n > MaxCandidates {
		return Errorf(Invalid, `field "candidates" has %d candidates: 1 to %d are allowed`, n, MaxCandidates)
	}
	for _, c := range r.Candidates {
		if err := CheckName("provider", c.Provider); err != nil {
			return err
		}
		if c.Model != "" {
			if err := checkPatterns("candidates", []string{c.Model}, 1); err != nil {
				return err
			}
		}
		if c.Weight < 0 || c.Weight > 1000 {
			return Errorf(Invalid, `field "candidates": the weight of %s is not from 0 to 1000`, c.Provider)
		}
		if w := c.When; w != nil {
			if w.MinInput < 0 || w.MaxInput < 0 || w.MaxInput > 0 && w.MaxInput < w.MinInput || !(w.Share >= 0 && w.Share <= 1) || len(w.Metadata) > 64 {
				return Errorf(Invalid, `field "candidates": the condition of %s can never hold: input is from min_input to max_input, share is from 0 to 1`, c.Provider)
			}
			if err := cmp.Or(checkPatterns("agents", w.Agents, MaxPatterns), checkPatterns("users", w.Users, MaxPatterns)); err != nil {
				return err
			}
		}
	}
	if r.Attempts < 0 || r.Attempts > 10 {
		return Errorf(Invalid, `field "attempts" is not from 1 to 10`)
	}
	if r.Deadline < 0 || r.Deadline > time.Hour {
		return Errorf(Invalid, `field "deadline" is not from 0 to 1h`)
	}
	if r.Cache < 0 || r.Cache > MaxModelWindow {
		return Errorf(Invalid, `field "cache" is not from 0 to 31 days`)
	}
	for _, c := range r.FailOver {
		if c != ContextLength && c != ContentFault {
			return Errorf(Invalid, `field "fail_over" takes context_length and content: the others are failed over anyway, or never`)
		}
	}
	return cmp.Or(checkText("description", r.Description), checkPatterns("models", r.Models, MaxPatterns))
}

// Check returns an Invalid error that names the field unless l can be stored.
func (l *ModelLimit) Check() error {
	if err := modelRecord("limit", l.Name); err != nil {
		return err
	}
	if int(l.Each) >= len(limitEachNames) {
		return Errorf(Invalid, `field "each" is not app, agent, key or user`)
	}
	if l.Window < time.Minute || l.Window > MaxModelWindow {
		return Errorf(Invalid, `field "window" is not from a minute to 31 days`)
	}
	for _, n := range []int64{l.Requests, l.Tokens, l.Spend, l.Unpriced} {
		if n < 0 || n > math.MaxInt64/4 {
			return Errorf(Invalid, "a limit is 0, for none, or more")
		}
	}
	if l.Requests == 0 && l.Tokens == 0 && l.Spend == 0 {
		return &Error{Kind: Invalid, Msg: "this limit bounds nothing", Hint: "set requests, tokens or spend"}
	}
	if l.Unpriced > 0 && l.Spend == 0 {
		return Errorf(Invalid, `field "unpriced" is for a limit with "spend"`)
	}
	if l.Each == EachOrg && l.App != DefaultApp {
		return &Error{Kind: Invalid, Msg: "a limit of all apps together is the default app's, and not one of " + string(l.App), Hint: "set it there: --app " + string(DefaultApp)}
	}
	if (l.Each == EachApp || l.Each == EachOrg) && len(l.Match) > 0 {
		return Errorf(Invalid, `field "match" is for a limit of each agent, key or user`)
	}
	if name, ok := strings.CutPrefix(l.Instead, "@"); l.Instead != "" && (!ok || CheckName("route", name) != nil) {
		return Errorf(Invalid, `field "instead" is not a route as @NAME`)
	}
	return cmp.Or(checkPatterns("match", l.Match, MaxPatterns), checkPatterns("models", l.Models, MaxPatterns))
}

// Check returns an Invalid error that names the field unless g can be stored.
func (g *Guardrail) Check() error {
	if err := modelRecord("guardrail", g.Name); err != nil {
		return err
	}
	if len(g.Find)+len(g.Patterns)+len(g.Words) == 0 {
		return &Error{Kind: Invalid, Msg: "this guardrail looks for nothing", Hint: "set find, patterns or words"}
	}
	if !g.Prompt && !g.Response {
		return &Error{Kind: Invalid, Msg: "this guardrail looks at nothing", Hint: "set prompt, response or both"}
	}
	for _, f := range g.Find {
		if !slices.Contains(GuardFinders(), f) {
			return &Error{Kind: Invalid, Msg: `field "find": there is no ` + quote(f), Hint: "use " + strings.Join(GuardFinders(), ", ")}
		}
	}
	if len(g.Patterns) > MaxPatterns || len(g.Words) > 4*MaxPatterns {
		return Errorf(Invalid, "a guardrail has at most %d patterns and %d words", MaxPatterns, 4*MaxPatterns)
	}
	for _, p := range g.Patterns {
		if p == "" || len(p) > 1024 {
			return Errorf(Invalid, `field "patterns": a pattern is 1 to 1024 bytes long`)
		}
		re, err := regexp.Compile(p)
		if err != nil {
			return Wrap(Invalid, err, `field "patterns": `+quote(p)+" is no regular expression of RE2")
		}
		if re.MatchString("") {
			return Errorf(Invalid, `field "patterns": %s matches nothing at all, and so everywhere`, quote(p))
		}
	}
	for _, w := range g.Words {
		if strings.TrimSpace(w) == "" || len(w) > MaxModelName {
			return Errorf(Invalid, `field "words": a word is 1 to %d bytes long`, MaxModelName)
		}
	}
	return cmp.Or(checkPatterns("agents", g.Agents, MaxPatterns), checkPatterns("models", g.Models, MaxPatterns))
}

// Check returns an Invalid error that names the field unless k can be stored.
func (k *ModelKey) Check() error {
	if err := CheckName("key", k.Name); err != nil {
		return err
	}
	if k.Agent != "" {
		if err := CheckName("agent", k.Agent); err != nil {
			return err
		}
	}
	if len(k.User) > MaxModelName {
		return Errorf(Invalid, `field "user" is longer than %d bytes`, MaxModelName)
	}
	return checkPatterns("models", k.Models, MaxPatterns)
}
