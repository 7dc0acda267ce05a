package openai

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// classes says what the codes and types of errors mean that are in use among OpenAI and those who speak its protocols.
var classes = map[string]agent.FaultClass{
	"rate_limit_exceeded": agent.RateLimited, "rate_limit_error": agent.RateLimited, "rate_limited": agent.RateLimited,
	"slow_down": agent.RateLimited, "too_many_requests": agent.RateLimited, "tokens": agent.RateLimited, "requests": agent.RateLimited,

	"insufficient_quota": agent.QuotaExhausted, "credit_balance_exhausted": agent.QuotaExhausted,
	"organization_spend_limit_exceeded": agent.QuotaExhausted, "project_spend_limit_exceeded": agent.QuotaExhausted,
	"organization_usage_limit_exceeded": agent.QuotaExhausted, "billing_hard_limit_reached": agent.QuotaExhausted,
	"billing_not_active": agent.QuotaExhausted, "insufficient_balance": agent.QuotaExhausted, "quota_exceeded": agent.QuotaExhausted,
	"insufficient_credits": agent.QuotaExhausted,

	"server_is_overloaded": agent.Overloaded, "overloaded_error": agent.Overloaded, "engine_overloaded": agent.Overloaded,
	"model_overloaded": agent.Overloaded, "server_overloaded": agent.Overloaded, "overloaded": agent.Overloaded,
	"service_unavailable": agent.Overloaded,

	"server_error": agent.ServerFault, "api_error": agent.ServerFault, "internal_error": agent.ServerFault,
	"internal_server_error": agent.ServerFault, "timeout": agent.ServerFault,

	"stream_broken": agent.StreamBroken,

	"invalid_api_key": agent.AuthFault, "authentication_error": agent.AuthFault, "permission_error": agent.AuthFault,
	"permission_denied": agent.AuthFault, "account_deactivated": agent.AuthFault, "invalid_organization": agent.AuthFault,

	"context_length_exceeded": agent.ContextLength,

	"content_filter": agent.ContentFault, "content_policy_violation": agent.ContentFault, "moderation_blocked": agent.ContentFault,
	"invalid_prompt": agent.ContentFault, "responsible_ai_policy_violation": agent.ContentFault,

	"invalid_request_error": agent.InvalidRequest, "invalid_request": agent.InvalidRequest, "model_not_found": agent.InvalidRequest,
	"not_found_error": agent.InvalidRequest, "unsupported_parameter": agent.InvalidRequest, "unsupported_value": agent.InvalidRequest,
	"invalid_value": agent.InvalidRequest, "missing_required_parameter": agent.InvalidRequest,
}

var (
	longText  = regexp.MustCompile(`(?i)maximum context length|context window|context length|prompt is too long|input is too long|too many tokens in the (prompt|input)|exceeds? the (model's )?context`)
	quotaText = regexp.MustCompile(`(?i)exceeded your current quota|insufficient balance|credit balance|insufficient credits|out of credits|spend(ing)? limit`)
	keyText   = regexp.MustCompile(`\b(?:(?:sk|pk|rk|gsk|xai|key)[-_]|AIza|Bearer )[A-Za-z0-9_\-*.]{12,}`)
	againText = regexp.MustCompile(`(?i)try again in ([0-9.]+)\s*(ms|s|seconds?|m|minutes?)\b`)
)

// MaxMessage bounds the text of an error, in bytes.
const MaxMessage = 2 << 10

// classify says what an error is by its names, then by its text, then by its HTTP status; status 0 is an error within a stream.
func classify(status int, typ, code, message string) agent.FaultClass {
	byCode, byType := classes[strings.ToLower(code)], classes[strings.ToLower(typ)]
	for _, c := range []agent.FaultClass{byCode, byType} { // these are sure, whatever the status says
		switch c {
		case agent.QuotaExhausted, agent.ContextLength, agent.ContentFault:
			return c
		}
	}
	switch {
	case status == 402, (status == 0 || status == 429 || status == 403 || status == 400) && quotaText.MatchString(message):
		return agent.QuotaExhausted
	case (status == 0 || status == 400 || status == 413 || status == 422) && byType != agent.RateLimited && longText.MatchString(message):
		return agent.ContextLength
	case byCode == agent.RateLimited || status == 429:
		return agent.RateLimited
	case status == 529 || byCode == agent.Overloaded || byType == agent.Overloaded || status == 503:
		return agent.Overloaded
	case status == 401 || status == 403:
		return agent.AuthFault
	case status >= 500 || status == 408 || status == 409 || status == 425:
		return agent.ServerFault
	case status >= 400:
		return agent.InvalidRequest
	case byCode != agent.NoFault:
		return byCode
	case byType != agent.NoFault:
		return byType
	case status == 0:
		return agent.StreamBroken
	}
	return agent.ServerFault
}

// DecodeFault reads an answer that is an error, in any of the forms that are in use.
func DecodeFault(status int, header http.Header, body []byte) *wire.Fault {
	f := &wire.Fault{Status: status}
	if len(body) <= 1<<20 && raw.Valid(body) {
		read(f, gjson.ParseBytes(body))
	}
	if f.Message = strings.TrimSpace(Clean(f.Message)); f.Message == "" {
		f.Message = Clean(text(status, body))
	}
	f.Class = classify(status, f.Type, f.Code, f.Message)
	f.After = wire.RetryAfter(header, time.Now())
	if f.After == 0 && f.Class == agent.RateLimited {
		f.After = again(f.Message)
	}
	f.Final = wire.Final(header)
	f.Header = wire.PassedHeader(header)
	for _, name := range []string{"X-Request-Id", "Request-Id", "Apim-Request-Id"} {
		if id := header.Get(name); id != "" {
			f.Request = cut(id, 200)
			break
		}
	}
	return f
}

// StreamFault reads an error that came within a stream: the object itself.
func StreamFault(r gjson.Result) *wire.Fault {
	f := &wire.Fault{}
	read(f, r)
	if f.Message = strings.TrimSpace(Clean(f.Message)); f.Message == "" {
		f.Message = "the provider ended the stream with an error"
	}
	status := 0
	if n, err := strconv.Atoi(f.Code); err == nil && n >= 400 && n < 600 {
		status = n
	}
	f.Class = classify(status, f.Type, f.Code, f.Message)
	f.Status = status
	return f
}

// read takes the fields of an error: of {"error": {...}}, {"error": "..."}, the object in it alone, {"detail": ...}, or a list of one of these.
func read(f *wire.Fault, r gjson.Result) {
	if r.IsArray() {
		r = r.Get("0")
	}
	if e := r.Get("error"); e.IsObject() {
		r = e
	} else if e.Type == gjson.String {
		f.Message = e.Str
	}
	if r.Type == gjson.String {
		f.Message = r.Str
		return
	}
	for _, k := range []string{"message", "detail", "msg"} {
		if v := r.Get(k); f.Message == "" && v.Exists() && v.Type != gjson.Null {
			f.Message = v.String()
		}
	}
	name := func(key string) string {
		if v := r.Get(key); v.Type == gjson.String || v.Type == gjson.Number {
			return cut(v.String(), 200)
		}
		return ""
	}
	f.Type, f.Code, f.Param = name("type"), name("code"), name("param")
	if f.Type == "" {
		f.Type = name("status")
	}
	if f.Type == "error" { // of an event whose type this is
		f.Type = ""
	}
	if inner := r.Get("innererror.code"); f.Code == "" && inner.Type == gjson.String {
		f.Code = cut(inner.Str, 200)
	}
}

func text(status int, body []byte) string {
	s := strings.TrimSpace(cut(string(body[:min(len(body), MaxMessage)]), MaxMessage))
	if s == "" || strings.HasPrefix(s, "<") || strings.HasPrefix(s, "{") || strings.HasPrefix(s, "[") {
		return strings.TrimSpace("the provider answered with HTTP status " + strconv.Itoa(status) + " " + http.StatusText(status))
	}
	return s
}

// Clean takes out what looks like a key, and bounds a message.
func Clean(s string) string {
	return cut(keyText.ReplaceAllString(cut(s, MaxMessage), "[key]"), MaxMessage)
}

func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}

func again(message string) time.Duration {
	m := againText.FindStringSubmatch(message)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil || n < 0 || n > 1e6 {
		return 0
	}
	unit := time.Second
	switch {
	case strings.EqualFold(m[2], "ms"):
		unit = time.Millisecond
	case strings.HasPrefix(strings.ToLower(m[2]), "m"):
		unit = time.Minute
	}
	return time.Duration(n * float64(unit))
}

type errorBody struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// dialect has what each class is called.
var dialect = map[agent.FaultClass]struct {
	status    int
	typ, code string
}{
	agent.NoFault:        {500, "server_error", ""},
	agent.RateLimited:    {429, "rate_limit_error", "rate_limit_exceeded"},
	agent.QuotaExhausted: {429, "insufficient_quota", "insufficient_quota"},
	agent.Overloaded:     {503, "server_error", "server_is_overloaded"},
	agent.ServerFault:    {502, "server_error", "server_error"},
	agent.AuthFault:      {401, "invalid_request_error", "invalid_api_key"},
	agent.InvalidRequest: {400, "invalid_request_error", ""},
	agent.ContextLength:  {400, "invalid_request_error", "context_length_exceeded"},
	agent.ContentFault:   {400, "invalid_request_error", "content_filter"},
	agent.ClientAbort:    {499, "server_error", ""},
	agent.StreamBroken:   {502, "server_error", "stream_broken"},
}

// names returns status, type and code of f in the dialect. A name that the provider gave stays when it is one of the dialect and means the same.
func names(f *wire.Fault) (status int, typ, code string) {
	d := dialect[f.Class]
	status, typ, code = d.status, d.typ, d.code
	if f.Status >= 400 && f.Status < 600 && f.Status != 529 {
		status = f.Status
	}
	if f.Class == agent.AuthFault && status == 403 {
		code = "permission_denied"
	}
	if c, ok := classes[f.Code]; ok && c == f.Class {
		code = f.Code
	}
	if f.Class == agent.QuotaExhausted || f.Own && f.Code != "" {
		if f.Code != "" {
			code = f.Code
		}
	}
	return status, typ, code
}

func object(f *wire.Fault) errorBody {
	_, typ, code := names(f)
	b := errorBody{Message: Clean(f.Message), Type: typ}
	if f.Param != "" {
		b.Param = &f.Param
	}
	if code != "" {
		b.Code = &code
	}
	return b
}

// EncodeFault makes what a client expects as the error f.
func EncodeFault(f *wire.Fault) (status int, header http.Header, body []byte) {
	status, _, _ = names(f)
	header = http.Header{}
	for k, v := range f.Header {
		header[k] = v
	}
	header.Set("Content-Type", "application/json")
	if f.After > 0 {
		header.Set("Retry-After", strconv.FormatInt(int64((f.After+time.Second-1)/time.Second), 10))
	}
	if f.Final != nil {
		header.Set("X-Should-Retry", strconv.FormatBool(!*f.Final))
	}
	if f.Request != "" && header.Get("X-Request-Id") == "" {
		header.Set("X-Request-Id", f.Request)
	}
	body, _ = json.Marshal(struct {
		Error errorBody `json:"error"`
	}{object(f)})
	return status, header, body
}

// ErrorObject is f as the object {"message", "type", "param", "code"}.
func ErrorObject(f *wire.Fault) []byte {
	b, _ := json.Marshal(object(f))
	return b
}

// ErrorCode is what f is called.
func ErrorCode(f *wire.Fault) string {
	_, typ, code := names(f)
	if code == "" {
		return typ
	}
	return code
}
