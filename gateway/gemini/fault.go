package gemini

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

var (
	longText  = regexp.MustCompile(`(?i)exceeds the maximum number of tokens|input token count|context (length|window)|request payload size exceeds`)
	quotaText = regexp.MustCompile(`(?i)per day|daily|billing (account|is)|credits? (are|is) depleted|prepayment|spend(ing)? (cap|limit)`)
	keyText   = regexp.MustCompile(`(?i)api key (not valid|expired|not found)|api_key_invalid|reported as leaked`)
)

// maxFault bounds the body of an error that is read.
const maxFault = 1 << 20

// told is what an error's details say.
type told struct {
	after time.Duration // RetryInfo
	daily bool          // a quota of a day or longer is used up
	quota bool          // some quota is
	key   bool          // the key is no good
}

func (codec) DecodeFault(status int, header http.Header, body []byte) *wire.Fault {
	f := &wire.Fault{Status: status}
	var t told
	if len(body) <= maxFault && raw.Valid(body) {
		t = readFault(f, gjson.ParseBytes(body))
		f.Status = status
	}
	if f.Message == "" {
		f.Message = strings.TrimSpace("the provider answered with HTTP status " + strconv.Itoa(status) + " " + http.StatusText(status))
	}
	f.After, f.Final, f.Header = wire.RetryAfter(header, time.Now()), wire.Final(header), wire.PassedHeader(header)
	if f.After == 0 {
		f.After = t.after
	}
	for _, name := range []string{"x-request-id", "x-goog-request-id", "x-cloud-trace-context"} {
		if id := header.Get(name); f.Request == "" && id != "" && len(id) <= 200 {
			f.Request = id
		}
	}
	f.Class = classify(f, t)
	return f
}

// streamFault reads the error of a stream.
func streamFault(v gjson.Result) *wire.Fault {
	f := &wire.Fault{}
	t := readFault(f, v)
	if f.Message == "" {
		f.Message = "the provider ended the stream with an error"
	}
	f.After = t.after
	f.Class = classify(f, t)
	if f.Class == agent.ServerFault {
		f.Class = agent.StreamBroken
	}
	return f
}

func readFault(f *wire.Fault, v gjson.Result) (t told) {
	if v.IsArray() { // of a stream that never began
		v = v.Get("0")
	}
	e := v.Get("error")
	if e.Type == gjson.String {
		f.Message = openai.Clean(e.Str)
		return t
	}
	name := func(v gjson.Result) string {
		if v.Type != gjson.String || len(v.Str) > 200 {
			return ""
		}
		return strings.ToValidUTF8(v.Str, "")
	}
	f.Type, f.Message = name(e.Get("status")), openai.Clean(e.Get("message").String())
	if n := e.Get("code").Int(); n >= 400 && n < 600 {
		f.Status = int(n)
	}
	e.Get("details").ForEach(func(_, d gjson.Result) bool {
		kind := d.Get("@type").Str
		switch kind[strings.LastIndexByte(kind, '.')+1:] {
		case "RetryInfo":
			if after, err := time.ParseDuration(d.Get("retryDelay").Str); err == nil && after > 0 {
				t.after = after
			}
		case "QuotaFailure":
			d.Get("violations").ForEach(func(_, q gjson.Result) bool {
				t.quota = true
				id := q.Get("quotaId").Str
				t.daily = t.daily || strings.Contains(id, "PerDay") || strings.Contains(id, "PerMonth")
				if f.Code == "" {
					f.Code = name(q.Get("quotaId"))
				}
				return true
			})
		case "ErrorInfo":
			reason := name(d.Get("reason"))
			t.key = t.key || strings.HasPrefix(reason, "API_KEY_")
			if f.Code == "" {
				f.Code = reason
			}
		case "BadRequest":
			f.Param = name(d.Get("fieldViolations.0.field"))
		case "RequestInfo":
			f.Request = name(d.Get("requestId"))
		}
		return true
	})
	return t
}

// classify says what an error is: by its details, its text, and then its status.
func classify(f *wire.Fault, t told) agent.FaultClass {
	switch status := f.Status; {
	case t.key, keyText.MatchString(f.Message) && (status == 400 || status == 401 || status == 403):
		return agent.AuthFault
	case status == 402, status == 429 && t.daily, (status == 429 && t.after == 0 || status == 400) && quotaText.MatchString(f.Message):
		return agent.QuotaExhausted
	case (status == 400 || status == 413) && longText.MatchString(f.Message):
		return agent.ContextLength
	case status == 429:
		return agent.RateLimited
	case status == 503 || status == 529 || status == 0 && f.Type == "UNAVAILABLE":
		return agent.Overloaded
	case status == 401 || status == 403:
		return agent.AuthFault
	case status >= 500 || status == 408 || status == 409 || status == 499:
		return agent.ServerFault
	case status >= 400:
		return agent.InvalidRequest
	}
	switch f.Type {
	case "RESOURCE_EXHAUSTED":
		if t.daily {
			return agent.QuotaExhausted
		}
		return agent.RateLimited
	case "INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND":
		return agent.InvalidRequest
	case "UNAUTHENTICATED", "PERMISSION_DENIED":
		return agent.AuthFault
	}
	return agent.ServerFault
}

// dialect is how each class is told.
func dialect(f *wire.Fault) (status int, name string) {
	switch f.Class {
	case agent.RateLimited, agent.QuotaExhausted:
		status, name = 429, "RESOURCE_EXHAUSTED"
	case agent.Overloaded:
		return 503, "UNAVAILABLE"
	case agent.AuthFault:
		status, name = 401, "UNAUTHENTICATED"
		if f.Status == 403 {
			name = "PERMISSION_DENIED"
		}
	case agent.InvalidRequest, agent.ContextLength, agent.ContentFault:
		status, name = 400, "INVALID_ARGUMENT"
		if f.Status == 404 {
			name = "NOT_FOUND"
		}
	case agent.ClientAbort:
		status, name = 499, "CANCELLED"
	case agent.NoFault, agent.ServerFault, agent.StreamBroken:
		status, name = 500, "INTERNAL"
		switch f.Status {
		case 502, 503:
			name = "UNAVAILABLE"
		case 504, 408:
			name = "DEADLINE_EXCEEDED"
		}
	}
	if f.Status >= 400 {
		status = f.Status
	}
	return status, name
}

func faultBody(f *wire.Fault) []byte {
	if f == nil {
		f = &wire.Fault{Class: agent.StreamBroken, Message: "the provider's stream ended before its end"}
	}
	status, name := dialect(f)
	b := strconv.AppendInt([]byte(`{"error":{"code":`), int64(status), 10)
	b = append(b, `,"message":`...)
	b = raw.AppendString(b, openai.Clean(f.Message))
	b = append(b, `,"status":`...)
	b = raw.AppendString(b, name)
	var details [][]byte
	if f.After > 0 {
		seconds := strconv.FormatFloat(f.After.Seconds(), 'f', -1, 64)
		details = append(details, []byte(`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"`+seconds+`s"}`))
	}
	if f.Code != "" && (f.Class == agent.QuotaExhausted || f.Own) {
		d := append([]byte(`{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":`), raw.AppendString(nil, f.Code)...)
		details = append(details, append(d, '}'))
	}
	if f.Param != "" {
		d := append([]byte(`{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":`), raw.AppendString(nil, f.Param)...)
		details = append(details, append(d, "}]}"...))
	}
	if f.Request != "" {
		d := append([]byte(`{"@type":"type.googleapis.com/google.rpc.RequestInfo","requestId":`), raw.AppendString(nil, f.Request)...)
		details = append(details, append(d, '}'))
	}
	for i, d := range details {
		sep := byte(',')
		if i == 0 {
			b = append(b, `,"details":`...)
			sep = '['
		}
		b = append(append(b, sep), d...)
	}
	if details != nil {
		b = append(b, ']')
	}
	return append(b, "}}"...)
}

func (codec) EncodeFault(f *wire.Fault) (status int, header http.Header, body []byte) {
	status, _ = dialect(f)
	header = http.Header{}
	for k, v := range f.Header {
		header[k] = v
	}
	header.Set("Content-Type", "application/json; charset=utf-8")
	if f.After > 0 {
		header.Set("Retry-After", strconv.FormatInt(int64((f.After+time.Second-1)/time.Second), 10))
	}
	if f.Final != nil {
		header.Set("X-Should-Retry", strconv.FormatBool(!*f.Final))
	}
	if f.Request != "" {
		header.Set("X-Request-Id", f.Request)
	}
	return status, header, faultBody(f)
}

// BrokenFrame is the error in a stream of server-sent events. In the form of an array a meter or an encoder knows what it looks like.
func (codec) BrokenFrame(f *wire.Fault) []byte { return sse.Append(nil, "", faultBody(f)) }
