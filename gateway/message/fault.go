package message

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

// spent are codes (details.error_code) that say that an account has nothing left.
var spent = map[string]bool{
	"enforced_spend_limit_reached": true, "contract_spend_limit_reached": true, "linked_organization_spend_limit_reached": true, "ramp_limit_exceeded": true,
	"spend_limit_reached": true, "credit_balance_exhausted": true,
}

var (
	longText  = regexp.MustCompile(`(?i)prompt is too long|input is too long|exceeds? (the )?context|context window|input length and .?max_tokens.? exceed`)
	quotaText = regexp.MustCompile(`(?i)credit balance is too low|spend(ing)? limit|usage limits? (has|have) been reached|reached your specified .*usage limits`)
	fieldText = regexp.MustCompile(`^([a-z_]+(?:\.(?:[0-9]+|[a-z_]+))*): `)
)

// maxFault bounds the body of an error that is read.
const maxFault = 1 << 20

func (codec) DecodeFault(status int, header http.Header, body []byte) *wire.Fault {
	f := &wire.Fault{Status: status}
	if len(body) <= maxFault && raw.Valid(body) {
		readFault(f, gjson.ParseBytes(body))
	}
	if f.Message == "" {
		f.Message = strings.TrimSpace("the provider answered with HTTP status " + strconv.Itoa(status) + " " + http.StatusText(status))
	}
	f.After, f.Final, f.Header = wire.RetryAfter(header, time.Now()), wire.Final(header), wire.PassedHeader(header)
	for _, name := range []string{"request-id", "x-request-id"} {
		if id := header.Get(name); id != "" && len(id) <= 200 {
			f.Request = id
			break
		}
	}
	waits := header.Get("Retry-After") != "" || header.Get("Retry-After-Ms") != "" || header.Get("X-Should-Retry") == "true"
	f.Class = classify(f, waits)
	return f
}

// streamFault reads the error of a stream.
func streamFault(v gjson.Result) *wire.Fault {
	f := &wire.Fault{}
	readFault(f, v)
	if f.Message == "" {
		f.Message = "the provider ended the stream with an error"
	}
	f.Class = classify(f, true)
	if f.Class == agent.ServerFault {
		f.Class = agent.StreamBroken
	}
	return f
}

func readFault(f *wire.Fault, v gjson.Result) {
	e := v.Get("error")
	if e.Type == gjson.String {
		f.Message = openai.Clean(e.Str)
		return
	}
	name := func(v gjson.Result) string {
		if v.Type != gjson.String || len(v.Str) > 200 {
			return ""
		}
		return strings.ToValidUTF8(v.Str, "")
	}
	f.Type, f.Message, f.Request = name(e.Get("type")), openai.Clean(e.Get("message").String()), name(v.Get("request_id"))
	if f.Code = name(e.Get("details").Get("error_code")); f.Code == "" {
		f.Code = name(e.Get("code"))
	}
	if m := fieldText.FindStringSubmatch(f.Message); m != nil {
		f.Param = m[1]
	}
}

// classify says what an error is: by its code, its text, its type and then its status, which is 0 within a stream. waits tells that the answer says when
// to try again: without that, too many requests are those of an account that has nothing left.
func classify(f *wire.Fault, waits bool) agent.FaultClass {
	status := f.Status
	switch {
	case spent[f.Code], status == 402, f.Type == "billing_error",
		(status == 400 || status == 403 || status == 429 || status == 0) && quotaText.MatchString(f.Message):
		return agent.QuotaExhausted
	case (status == 400 || status == 413 || status == 0) && longText.MatchString(f.Message):
		return agent.ContextLength
	case status == 429 && !waits:
		return agent.QuotaExhausted
	case status == 429:
		return agent.RateLimited
	case status == 529 || status == 503:
		return agent.Overloaded
	case status == 401 || status == 403:
		return agent.AuthFault
	case status >= 500 || status == 408 || status == 409:
		if f.Type == "overloaded_error" {
			return agent.Overloaded
		}
		return agent.ServerFault
	case status >= 400:
		return agent.InvalidRequest
	}
	switch f.Type {
	case "overloaded_error":
		return agent.Overloaded
	case "rate_limit_error":
		return agent.RateLimited
	case "authentication_error", "permission_error":
		return agent.AuthFault
	case "invalid_request_error", "not_found_error", "request_too_large":
		return agent.InvalidRequest
	}
	return agent.ServerFault
}

// dialect is how each class is told.
func dialect(f *wire.Fault) (status int, typ string) {
	switch f.Class {
	case agent.RateLimited:
		status, typ = 429, "rate_limit_error"
	case agent.QuotaExhausted:
		status, typ = 429, "rate_limit_error"
		if f.Status == 402 {
			typ = "billing_error"
		}
	case agent.Overloaded:
		status, typ = 529, "overloaded_error"
		if f.Own {
			status = 503
		}
	case agent.AuthFault:
		status, typ = 401, "authentication_error"
		if f.Status == 403 {
			typ = "permission_error"
		}
	case agent.InvalidRequest, agent.ContextLength, agent.ContentFault:
		status, typ = 400, "invalid_request_error"
		switch f.Status {
		case 404:
			typ = "not_found_error"
		case 413:
			typ = "request_too_large"
		}
	case agent.ClientAbort:
		status, typ = 499, "api_error"
	case agent.StreamBroken:
		status, typ = 502, "api_error"
	case agent.ServerFault:
		status, typ = 502, "api_error"
		if f.Status == 504 || f.Status == 408 {
			typ = "timeout_error"
		}
	case agent.NoFault:
		status, typ = 500, "api_error"
	}
	if f.Status >= 400 && f.Class != agent.Overloaded {
		status = f.Status
	}
	return status, typ
}

func faultBody(f *wire.Fault) []byte {
	_, typ := dialect(f)
	b := append([]byte(nil), `{"type":"error","error":{"type":`...)
	b = raw.AppendString(b, typ)
	b = append(b, `,"message":`...)
	b = raw.AppendString(b, openai.Clean(f.Message))
	code := f.Code
	if f.Class == agent.QuotaExhausted && !spent[code] && !f.Own {
		code = "enforced_spend_limit_reached" // what clients of this protocol know as final
	}
	if code != "" {
		b = append(b, `,"details":{"error_code":`...)
		b = append(raw.AppendString(b, code), '}')
	}
	b = append(b, '}')
	if f.Request != "" {
		b = append(b, `,"request_id":`...)
		b = raw.AppendString(b, f.Request)
	}
	return append(b, '}')
}

func (codec) EncodeFault(f *wire.Fault) (status int, header http.Header, body []byte) {
	status, _ = dialect(f)
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
	if f.Request != "" {
		header.Set("Request-Id", f.Request)
	}
	return status, header, faultBody(f)
}

func (codec) BrokenFrame(f *wire.Fault) []byte {
	if f == nil {
		f = &wire.Fault{Class: agent.StreamBroken, Message: "the provider's stream ended before its end"}
	}
	return sse.Append(nil, "error", faultBody(f))
}
