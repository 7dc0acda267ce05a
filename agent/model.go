package agent

import "time"

// Protocol is a way in which models are spoken to. Who serves a model is a Provider; the two are apart.
type Protocol uint8

const (
	NoProtocol       Protocol = iota
	ChatProtocol              // OpenAI chat completions
	ResponseProtocol          // OpenAI responses
	MessageProtocol           // Anthropic messages
	GeminiProtocol            // Gemini generateContent and streamGenerateContent
	EmbedProtocol             // OpenAI embeddings
)

var protocolNames = [...]string{"", "openai-chat", "openai-responses", "anthropic", "gemini", "openai-embeddings"}

// Protocols lists those there are.
func Protocols() []Protocol {
	return []Protocol{ChatProtocol, ResponseProtocol, MessageProtocol, GeminiProtocol, EmbedProtocol}
}

// Chats reports whether a model is talked to in p; each such protocol can be translated into each other.
func (p Protocol) Chats() bool { return p >= ChatProtocol && p <= GeminiProtocol }

func (p Protocol) String() string               { return nameOf(protocolNames[:], p) }
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }
func (p *Protocol) UnmarshalText(b []byte) error {
	return parseName(protocolNames[:], b, p, "protocol")
}

// Provider is who serves models: an identity with a base URL, the protocols it speaks, and keys in the vault. Servers that speak a protocol of
// OpenAI, of any kind, are such records and no code.
type Provider struct {
	Name        string            `json:"name"`
	App         App               `json:"app"`
	Description string            `json:"description,omitempty"`
	URL         string            `json:"url,omitempty"`      // as the vendor's own SDK takes it; empty with Script
	Protocols   []Protocol        `json:"protocols"`          // best first; the client's own is used where it is among them
	Keys        []ProviderKey     `json:"keys,omitempty"`     // one of them for each call; none for servers that ask for none
	Auth        string            `json:"auth,omitempty"`     // header that takes the key: Authorization (as Bearer) or another; as the protocol has it unless set
	Header      map[string]string `json:"header,omitempty"`   // sent with each call
	Models      []string          `json:"models,omitempty"`   // names or patterns with * of what it serves; empty means that nobody said
	Private     bool              `json:"private,omitempty"`  // its address may be private, where the operator allows that
	Headers     time.Duration     `json:"headers,omitempty"`  // longest wait until an answer begins; nanoseconds in JSON
	Idle        time.Duration     `json:"idle,omitempty"`     // longest silence within a stream; nanoseconds in JSON
	Script      Digest            `json:"script,omitempty"`   // blob with the turns of a scripted provider, which needs no network
	Disabled    bool              `json:"disabled,omitempty"` // no call goes to it
	Prices      []ModelPrice      `json:"prices,omitempty"`   // before those of the price table
	Vendor      string            `json:"vendor,omitempty"`   // its name in the price table; by URL and Name unless set
	Created     time.Time         `json:"created"`
	Changed     time.Time         `json:"changed"`
	Revision    int64             `json:"revision"`
}

// ProviderKey is one of a provider's keys.
type ProviderKey struct {
	Secret string `json:"secret"`           // its name in the vault
	Weight int    `json:"weight,omitempty"` // its share of calls beside those of others; 1 unless set
}

// ModelPrice is what an operator says that a model costs, in micro-units (a millionth of a dollar) for a million tokens.
type ModelPrice struct {
	Model      string `json:"model"` // name, or pattern with *
	Input      int64  `json:"input"`
	Output     int64  `json:"output"`
	CacheRead  *int64 `json:"cache_read,omitempty"`  // Input unless set
	CacheWrite *int64 `json:"cache_write,omitempty"` // Input unless set
}

// ModelRoute is a name for an ordered list of candidates, one of which answers. It is asked for as @NAME, or by a model's name that is in Models.
type ModelRoute struct {
	Name        string        `json:"name"` // without the @
	App         App           `json:"app"`
	Description string        `json:"description,omitempty"`
	Candidates  []Candidate   `json:"candidates"`
	Models      []string      `json:"models,omitempty"`      // what clients ask for that leads here; patterns with *
	Weighted    bool          `json:"weighted,omitempty"`    // the first one is drawn by weight; the others follow in order
	Attempts    int           `json:"attempts,omitempty"`    // calls to providers for one request; 3 unless set
	Deadline    time.Duration `json:"deadline,omitempty"`    // of all attempts until the first content; nanoseconds in JSON
	FailOver    []FaultClass  `json:"fail_over,omitempty"`   // further classes of faults after which the next candidate is asked: context_length, content
	Cache       time.Duration `json:"cache,omitempty"`       // how long an answer to the same request is good; 0 turns the cache off; nanoseconds in JSON
	CacheTools  bool          `json:"cache_tools,omitempty"` // also for requests that offer tools
	Created     time.Time     `json:"created"`
	Changed     time.Time     `json:"changed"`
	Revision    int64         `json:"revision"`
}

// Candidate is a model of a provider.
type Candidate struct {
	Provider string     `json:"provider"`
	Model    string     `json:"model,omitempty"`  // the name that the provider knows; what was asked for unless set
	Weight   int        `json:"weight,omitempty"` // 1 unless set
	When     *Condition `json:"when,omitempty"`   // only for requests that fit
	Effort   string     `json:"effort,omitempty"` // of reasoning, where the request says nothing
}

// Condition is what a request must be like; each field that is set must hold.
type Condition struct {
	MinInput int64             `json:"min_input,omitempty"` // tokens, as estimated
	MaxInput int64             `json:"max_input,omitempty"`
	Tools    *bool             `json:"tools,omitempty"`  // the request offers tools
	Images   *bool             `json:"images,omitempty"` // images or files are in it
	Stream   *bool             `json:"stream,omitempty"`
	Agents   []string          `json:"agents,omitempty"` // patterns with *
	Users    []string          `json:"users,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"` // of the request
	Share    float64           `json:"share,omitempty"`    // of the requests that fit otherwise, this part: 0 to 1
}

// FaultClass says what a failed call to a provider was, and so what may be done about it.
type FaultClass uint8

const (
	NoFault        FaultClass = iota
	RateLimited               // too many calls at the moment: later, or elsewhere
	QuotaExhausted            // the account has no money or credit left: elsewhere, and not again soon
	Overloaded                // the provider has no room
	ServerFault               // the provider failed, or could not be reached
	AuthFault                 // the key is refused
	InvalidRequest            // the request can never succeed
	ContextLength             // the request is too long for this model
	ContentFault              // refused for what it says
	ClientAbort               // the caller went away; counts for nobody
	StreamBroken              // a stream ended without its end, failed in the middle, or fell silent
)

var faultNames = [...]string{
	"", "rate_limited", "quota_exhausted", "overloaded", "server", "auth", "invalid", "context_length", "content", "client_abort", "stream_broken",
}

func (c FaultClass) String() string               { return nameOf(faultNames[:], c) }
func (c FaultClass) MarshalText() ([]byte, error) { return []byte(c.String()), nil }
func (c *FaultClass) UnmarshalText(b []byte) error {
	return parseName(faultNames[:], b, c, "class of faults")
}

// ModelKey is a virtual key: it is good for calls of models alone, for one app, and for what it names. Its value is shown once, when it is made.
type ModelKey struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	App      App       `json:"app"`
	Agent    string    `json:"agent,omitempty"`   // on whose behalf it calls
	Session  SessionID `json:"session,omitempty"` // that its calls are counted for
	Run      RunID     `json:"run,omitempty"`     // it dies with the run
	User     string    `json:"user,omitempty"`    // whom its calls are counted for; a request may not say otherwise
	Models   []string  `json:"models,omitempty"`  // routes as @NAME and models as PROVIDER/MODEL that it may ask for, with *; empty means all of the app's
	Disabled bool      `json:"disabled,omitempty"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires,omitzero"` // zero means never
	Hint     string    `json:"hint,omitempty"`   // the first characters of its value
}

// ModelLimit bounds what models are asked for: strict, also for calls at once. A call holds an estimate, and gives back what it did not use.
type ModelLimit struct {
	Name     string        `json:"name"`
	App      App           `json:"app"`
	Each     LimitEach     `json:"each"`               // whose use is counted together
	Match    []string      `json:"match,omitempty"`    // only agents, keys or users with these names; patterns with *
	Models   []string      `json:"models,omitempty"`   // only calls of these: @ROUTE or PROVIDER/MODEL, with *
	Window   time.Duration `json:"window"`             // a minute to 31 days; from a day on by days in UTC; nanoseconds in JSON
	Requests int64         `json:"requests,omitempty"` // 0 means no bound
	Tokens   int64         `json:"tokens,omitempty"`   // input and output
	Spend    int64         `json:"spend,omitempty"`    // micro-units: a millionth of a dollar
	Unpriced int64         `json:"unpriced,omitempty"` // micro-units that a call counts for whose price is not known; with Spend and without this such calls are refused
	Instead  string        `json:"instead,omitempty"`  // route that is asked when the limit is reached, as @NAME, and not a refusal
	Created  time.Time     `json:"created"`
	Changed  time.Time     `json:"changed"`
	Revision int64         `json:"revision"`
}

// LimitUse is what somebody has used of a limit, of what counts now. What calls under way may use is in it.
type LimitUse struct {
	Who      string `json:"who"` // an agent, the id of a key, a user, the app, or "all apps"; "-" for all without a name
	Requests int64  `json:"requests"`
	Tokens   int64  `json:"tokens"`
	Spend    int64  `json:"spend"` // micro-units: a millionth of a dollar
}

// ModelLeft is what limits leave to whoever asked: of each kind, by the limit that leaves the least.
type ModelLeft struct {
	Requests, RequestsOf int64 // of so many; RequestsOf is 0 when nothing bounds them
	Tokens, TokensOf     int64
}

// LimitEach says whose use a limit counts together.
type LimitEach uint8

const (
	EachApp LimitEach = iota // all of the app's
	EachAgent
	EachKey
	EachUser
	EachOrg // all apps of the server together; such limits are the default app's
)

var limitEachNames = [...]string{"app", "agent", "key", "user", "org"}

func (e LimitEach) String() string               { return nameOf(limitEachNames[:], e) }
func (e LimitEach) MarshalText() ([]byte, error) { return []byte(e.String()), nil }
func (e *LimitEach) UnmarshalText(b []byte) error {
	return parseName(limitEachNames[:], b, e, "kind of limit")
}

// Guardrail looks at what goes to models and comes from them, arguments of tools included, whole or streamed.
type Guardrail struct {
	Name     string    `json:"name"`
	App      App       `json:"app"`
	Find     []string  `json:"find,omitempty"`     // what is built in: email, card, iban, phone, ip, key, jwt, private_key
	Patterns []string  `json:"patterns,omitempty"` // RE2, each of at most 256 bytes that match
	Words    []string  `json:"words,omitempty"`    // whole words, in any case
	Prompt   bool      `json:"prompt"`
	Response bool      `json:"response"`
	Block    bool      `json:"block,omitempty"`  // refuse; else what is found is replaced by [NAME]
	Agents   []string  `json:"agents,omitempty"` // only theirs; patterns with *
	Models   []string  `json:"models,omitempty"` // only these
	Created  time.Time `json:"created"`
	Changed  time.Time `json:"changed"`
	Revision int64     `json:"revision"`
}

// ModelTokens counts tokens. Input and Output are of all; the others tell parts of them, which do not overlap.
type ModelTokens struct {
	Input        int64 `json:"input"`
	CacheRead    int64 `json:"cache_read,omitempty"`     // of Input
	CacheWrite   int64 `json:"cache_write,omitempty"`    // of Input, kept for some minutes
	CacheWrite1h int64 `json:"cache_write_1h,omitempty"` // of Input, kept for an hour or longer
	AudioIn      int64 `json:"audio_in,omitempty"`       // of Input
	Output       int64 `json:"output"`
	Reasoning    int64 `json:"reasoning,omitempty"` // of Output
	AudioOut     int64 `json:"audio_out,omitempty"` // of Output
	Searches     int64 `json:"searches,omitempty"`  // of the web, which are no tokens
}

// Add adds u to t.
func (t *ModelTokens) Add(u ModelTokens) {
	for _, f := range []struct{ to, of *int64 }{
		{&t.Input, &u.Input}, {&t.CacheRead, &u.CacheRead}, {&t.CacheWrite, &u.CacheWrite}, {&t.CacheWrite1h, &u.CacheWrite1h},
		{&t.AudioIn, &u.AudioIn}, {&t.Output, &u.Output}, {&t.Reasoning, &u.Reasoning}, {&t.AudioOut, &u.AudioOut}, {&t.Searches, &u.Searches},
	} {
		*f.to = sum(*f.to, max(*f.of, 0))
	}
}

// UseSource says where the figures of a ModelUse come from.
type UseSource uint8

const (
	NoSource     UseSource = iota
	FromProvider           // the provider told them
	Estimated              // it told none, so they were counted here
	Partial                // the call ended early: what had been told until then, and the rest counted
	FromCache              // nothing was asked of a provider
)

var useSourceNames = [...]string{"", "provider", "estimate", "partial", "cache"}

func (s UseSource) String() string               { return nameOf(useSourceNames[:], s) }
func (s UseSource) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
func (s *UseSource) UnmarshalText(b []byte) error {
	return parseName(useSourceNames[:], b, s, "source of usage")
}

// ModelUse is what one call to a provider used.
type ModelUse struct {
	Call     string        `json:"call"` // id of the call
	Provider string        `json:"provider"`
	Model    string        `json:"model"`            // as the provider knows it
	Route    string        `json:"route,omitempty"`  // as @NAME, when one was asked for
	Protocol Protocol      `json:"protocol"`         // spoken to the provider
	Key      string        `json:"key,omitempty"`    // id of the virtual key
	Secret   string        `json:"secret,omitempty"` // name of the provider's key
	User     string        `json:"user,omitempty"`
	Attempt  int           `json:"attempt"` // of the request, from 1
	Fault    FaultClass    `json:"fault,omitzero"`
	Source   UseSource     `json:"source"`
	Tokens   ModelTokens   `json:"tokens"`
	Micro    *int64        `json:"micro"`            // cost in millionths of a dollar; null when the price is not known
	Prices   string        `json:"prices,omitempty"` // version of the price table
	First    time.Duration `json:"first,omitempty"`  // until the first content; nanoseconds in JSON
	Raw      string        `json:"raw,omitempty"`    // usage as the provider told it, JSON, at most MaxRawUsage bytes
}

// MaxRawUsage bounds what is kept of a provider's own usage, in bytes.
const MaxRawUsage = 2 << 10
