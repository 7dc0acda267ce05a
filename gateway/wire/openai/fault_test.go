package openai

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/tidwall/gjson"
)

func TestFaultsHaveTheirClass(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   agent.FaultClass
	}{
		{429, `{"error":{"message":"Rate limit reached for gpt-x. Please try again in 20s.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`, agent.RateLimited},
		{429, `{"error":{"message":"slow","type":"requests"}}`, agent.RateLimited},
		{503, `{"error":{"message":"Slow down","type":"server_error","code":"slow_down"}}`, agent.RateLimited},
		{429, `Too Many Requests`, agent.RateLimited},
		{429, `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}`, agent.QuotaExhausted},
		{429, `{"error":{"message":"x","type":"insufficient_quota","code":"credit_balance_exhausted"}}`, agent.QuotaExhausted},
		{429, `{"error":{"message":"x","type":"insufficient_quota","code":"organization_spend_limit_exceeded"}}`, agent.QuotaExhausted},
		{429, `{"error":{"message":"x","code":"project_spend_limit_exceeded"}}`, agent.QuotaExhausted},
		{429, `{"error":{"message":"x","code":"organization_usage_limit_exceeded"}}`, agent.QuotaExhausted},
		{429, `{"error":{"message":"x","code":"billing_hard_limit_reached"}}`, agent.QuotaExhausted},
		{402, `{"error":{"message":"Insufficient Balance"}}`, agent.QuotaExhausted},
		{429, `{"error":{"message":"You exceeded your current quota"}}`, agent.QuotaExhausted},
		{529, `{"error":{"message":"busy"}}`, agent.Overloaded},
		{503, `<html>503</html>`, agent.Overloaded},
		{500, `{"error":{"message":"busy","type":"server_error","code":"server_is_overloaded"}}`, agent.Overloaded},
		{500, `{"error":{"message":"The server had an error","type":"server_error"}}`, agent.ServerFault},
		{502, ``, agent.ServerFault},
		{504, `{"detail":"timeout"}`, agent.ServerFault},
		{408, `{}`, agent.ServerFault},
		{401, `{"error":{"message":"Incorrect API key provided: sk-abcdefghijklmnop.","type":"invalid_request_error","code":"invalid_api_key"}}`, agent.AuthFault},
		{403, `{"error":{"message":"Country not supported","code":"unsupported_country_region_territory"}}`, agent.AuthFault},
		{400, `{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, agent.ContextLength},
		{400, `{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000","type":"BadRequestError","code":400}`, agent.ContextLength},
		{413, `{"error":{"message":"prompt is too long"}}`, agent.ContextLength},
		{400, `{"error":{"message":"filtered","code":"content_filter","innererror":{"code":"ResponsibleAIPolicyViolation"}}}`, agent.ContentFault},
		{400, `{"error":{"message":"x","code":"content_policy_violation"}}`, agent.ContentFault},
		{400, `{"error":{"message":"x","code":"invalid_prompt"}}`, agent.ContentFault},
		{400, `{"error":{"message":"Unknown parameter: 'x'.","type":"invalid_request_error","param":"x","code":"unknown_parameter"}}`, agent.InvalidRequest},
		{404, `{"error":{"message":"The model does not exist","code":"model_not_found"}}`, agent.InvalidRequest},
		{404, `{"error":"model \"x\" not found"}`, agent.InvalidRequest},
		{422, `{"detail":[{"loc":["body","x"],"msg":"extra fields not permitted"}]}`, agent.InvalidRequest},
		{400, `[{"error":{"code":400,"message":"Invalid","status":"INVALID_ARGUMENT"}}]`, agent.InvalidRequest},
	} {
		f := DecodeFault(c.status, http.Header{}, []byte(c.body))
		if f.Class != c.want {
			t.Errorf("%d %s is %s, want %s", c.status, c.body, f.Class, c.want)
		}
		if f.Message == "" || strings.Contains(f.Message, "<html") || strings.Contains(f.Message, "sk-abc") {
			t.Errorf("%d %s says %q", c.status, c.body, f.Message)
		}
	}
}

func TestFaultsTellWhatTheProviderSaid(t *testing.T) {
	h := http.Header{"Retry-After": {"7"}, "X-Should-Retry": {"false"}, "X-Request-Id": {"req_1"}, "X-Ratelimit-Remaining-Tokens": {"0"}, "Set-Cookie": {"a=b"}, "Openai-Organization": {"acme"}}
	f := DecodeFault(429, h, []byte(`{"error":{"message":"slow","type":"tokens","param":"p","code":"rate_limit_exceeded"}}`))
	if f.After != 7*time.Second || f.Final == nil || !*f.Final || f.Request != "req_1" || f.Type != "tokens" || f.Code != "rate_limit_exceeded" || f.Param != "p" || f.Status != 429 {
		t.Errorf("%+v", f)
	}
	if f.Header.Get("Retry-After") != "7" || f.Header.Get("X-Ratelimit-Remaining-Tokens") != "0" || f.Header.Get("Set-Cookie")+f.Header.Get("Openai-Organization") != "" {
		t.Errorf("%v", f.Header)
	}
	for name, c := range map[string]struct {
		h    http.Header
		body string
		want time.Duration
	}{
		"date":          {http.Header{"Retry-After": {"Sun, 29 Nov 2026 10:00:30 GMT"}, "Date": {"Sun, 29 Nov 2026 10:00:00 GMT"}}, ``, 30 * time.Second},
		"date gone by":  {http.Header{"Retry-After": {"Sun, 29 Nov 2026 09:00:30 GMT"}, "Date": {"Sun, 29 Nov 2026 10:00:00 GMT"}}, ``, 0},
		"milliseconds":  {http.Header{"Retry-After": {"7"}, "Retry-After-Ms": {"1500"}}, ``, 1500 * time.Millisecond},
		"fraction":      {http.Header{"Retry-After": {"0.5"}}, ``, 500 * time.Millisecond},
		"nonsense":      {http.Header{"Retry-After": {"soon"}}, ``, 0},
		"negative":      {http.Header{"Retry-After": {"-5"}}, ``, 0},
		"reset":         {http.Header{"X-Ratelimit-Remaining-Requests": {"0"}, "X-Ratelimit-Reset-Requests": {"1m30s"}}, ``, 90 * time.Second},
		"reset of more": {http.Header{"X-Ratelimit-Remaining-Requests": {"9"}, "X-Ratelimit-Reset-Requests": {"1m30s"}}, ``, 0},
		"in the text":   {http.Header{}, `{"error":{"message":"Please try again in 350ms."}}`, 350 * time.Millisecond},
		"in seconds":    {http.Header{}, `{"error":{"message":"Please try again in 1.5s."}}`, 1500 * time.Millisecond},
	} {
		if f := DecodeFault(429, c.h, []byte(c.body)); f.After != c.want {
			t.Errorf("%s: %v, want %v", name, f.After, c.want)
		}
	}
}

func TestOwnFaultsInTheDialect(t *testing.T) {
	for c := agent.NoFault; c <= agent.StreamBroken; c++ {
		status, h, body := EncodeFault(&wire.Fault{Class: c, Message: "what happened"})
		e := gjson.GetBytes(body, "error")
		if status < 400 || h.Get("Content-Type") != "application/json" || e.Get("message").Str != "what happened" || e.Get("type").Str == "" || !e.Get("code").Exists() || e.Get("param").Raw != "null" {
			t.Errorf("%s: %d %v %s", c, status, h, body)
		}
		if c == agent.NoFault || c == agent.ClientAbort {
			continue
		}
		if back := DecodeFault(status, h, body); back.Class != c && !(c == agent.StreamBroken && back.Class == agent.ServerFault) {
			t.Errorf("%s comes back as %s: %d %s", c, back.Class, status, body)
		}
		if back := StreamFault(gjson.ParseBytes(body)); back.Class != c {
			t.Errorf("%s comes back in a stream as %s: %s", c, back.Class, body)
		}
	}
	status, h, body := EncodeFault(&wire.Fault{Class: agent.QuotaExhausted, Status: 429, Code: "credit_balance_exhausted", Message: "pay", Param: "p", After: 1200 * time.Millisecond, Final: new(true), Request: "r"})
	if status != 429 || h.Get("Retry-After") != "2" || h.Get("X-Should-Retry") != "false" || h.Get("X-Request-Id") != "r" || string(body) != `{"error":{"message":"pay","type":"insufficient_quota","param":"p","code":"credit_balance_exhausted"}}` {
		t.Errorf("%d %v %s", status, h, body)
	}
	// Names of another dialect do not leak.
	status, _, body = EncodeFault(&wire.Fault{Class: agent.Overloaded, Status: 529, Type: "overloaded_error", Message: "busy"})
	if status != 503 || strings.Contains(string(body), "overloaded_error") {
		t.Errorf("%d %s", status, body)
	}
}

func TestUsageThatDoesNotAddUpIsCut(t *testing.T) {
	u := Usage(gjson.Parse(`{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":20,"cache_write_tokens":9},"completion_tokens_details":{"reasoning_tokens":7}}`))
	if u.Tokens != (agent.ModelTokens{Input: 10, CacheRead: 10, Output: 5, Reasoning: 5}) {
		t.Errorf("%+v", u.Tokens)
	}
	for _, s := range []string{``, `null`, `7`, `{}`, `{"total_tokens":5}`, `{"prompt_tokens":"5"}`} {
		if u := Usage(gjson.Parse(s)); u.Known {
			t.Errorf("%s is known", s)
		}
	}
	if u := Usage(gjson.Parse(`{"prompt_tokens":-4,"completion_tokens":1e300}`)); u.Tokens != (agent.ModelTokens{}) {
		t.Errorf("%+v", u.Tokens)
	}
}

func FuzzFault(f *testing.F) {
	f.Add(429, "7", []byte(`{"error":{"message":"x","type":"tokens","code":429}}`))
	f.Add(468, "0", []byte("\x86"))
	f.Add(500, "Sun, 29 Nov 2026 10:00:30 GMT", []byte(`[{"error":"x"}]`))
	f.Fuzz(func(t *testing.T, status int, after string, body []byte) {
		x := DecodeFault(status, http.Header{"Retry-After": {after}, "X-Request-Id": {after}}, body)
		if x.Message == "" || len(x.Message) > MaxMessage || x.After < 0 || x.Class == agent.NoFault {
			t.Fatalf("%+v", x)
		}
		s, _, b := EncodeFault(x)
		if s < 400 || !gjson.ValidBytes(b) {
			t.Fatalf("%d %s", s, b)
		}
	})
}
