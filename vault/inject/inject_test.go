package inject

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
)

func signed(t *testing.T, v vaultMap, a ask) (string, *user) {
	t.Helper()
	r, target := a.request(t)
	u := new(user)
	s, err := New(v, nil).Sign(context.Background(), u.use(), r, target)
	if err != nil {
		t.Fatalf("%v; %s", err, agent.AsError(err).Hint)
	}
	got, err := dump(r)
	if err != nil {
		t.Fatal(err)
	}
	if s == nil || s.In([]byte(s.String(got))) {
		t.Errorf("the Scrubber leaves a value: %q", s.String(got))
	}
	return got, u
}

func TestPlaces(t *testing.T) {
	v := attackVault(t)
	v.put(t, "other", agent.SecretValue, "{{secret:key}}", "https://api.example.com header:x-key query:key body:key body:/key header:authorization")
	const ph, line = "{{secret:key}}", "GET https://api.example.com/v1"
	for name, c := range map[string]struct {
		ask
		want string
	}{
		"header":              {ask{header: header("Authorization", "Bearer "+ph)}, line + "\nhost: \nAuthorization: Bearer " + canary + "\n"},
		"header, odd case":    {ask{header: header("X-kEY", ph)}, line + "\nhost: \nX-kEY: " + canary + "\n"},
		"header, two values":  {ask{header: header("X-Key", "a", "X-Key", ph)}, line + "\nhost: \nX-Key: a\nX-Key: " + canary + "\n"},
		"header, twice in it": {ask{header: header("X-Key", "<"+ph+"|"+ph+">")}, line + "\nhost: \nX-Key: <" + canary + "|" + canary + ">\n"},
		"cookie":              {ask{header: header("Cookie", "a=1; s="+ph+"; b=2")}, line + "\nhost: \nCookie: a=1; s=" + canary + "; b=2\n"},
		"below a wildcard":    {ask{url: "https://a.b.example.com/", header: header("Authorization", "{{secret:wild}}")}, "GET https://a.b.example.com/\nhost: \nAuthorization: " + canary + "\n"},
		"query":               {ask{url: "https://api.example.com/v1?a=%7e&key=" + ph + "&&b=+c"}, line + "?a=%7e&key=cnry-7f%223a%2F9%2Be1&&b=+c\nhost: \n"},
		"query, encoded":      {ask{url: "https://api.example.com/v1?key=a+b%7B%7Bsecret%3Akey%7D%7D%26"}, line + "?key=a%20bcnry-7f%223a%2F9%2Be1%26\nhost: \n"},
		"query, odd name":     {ask{url: "https://api.example.com/v1?k%65y=" + ph}, line + "?k%65y=cnry-7f%223a%2F9%2Be1\nhost: \n"},
		"query, any bytes":    {ask{url: "https://api.example.com/?key={{secret:crlf}}"}, "GET https://api.example.com/?key=cnry-7f%223a%2F9%2Be1%0D%0Ax-admin%3A%201\nhost: \n"},
		"form":                {typed(formType+"; charset=UTF-8", "a=1&key=x"+ph+"&b=%zz"), "POST https://api.example.com/v1\nhost: \nContent-Type: application/x-www-form-urlencoded; charset=UTF-8\n\na=1&key=xcnry-7f%223a%2F9%2Be1&b=%zz"},
		"JSON": {typed(jsonType, " {\"b\" : 1.50e+1,\n \"key\" :\"\\u007b{secret:key}}!\" , \"a\":[ {\"b/c\":\""+ph+"\"},\"\\u00e9\" ],\"x~y\":\""+ph+"\",\"<\":{} ,\"e\":[]} "),
			"POST https://api.example.com/v1\nhost: \nContent-Type: application/json\n\n {\"b\" : 1.50e+1,\n \"key\" :\"cnry-7f\\\"3a/9+e1!\" , \"a\":[ {\"b/c\":\"cnry-7f\\\"3a/9+e1\"},\"\\u00e9\" ],\"x~y\":\"cnry-7f\\\"3a/9+e1\",\"<\":{} ,\"e\":[]} "},
		"JSON of a kind": {typed("application/vnd.api+json", `{"key":"`+ph+`"}`), "POST https://api.example.com/v1\nhost: \nContent-Type: application/vnd.api+json\n\n{\"key\":\"cnry-7f\\\"3a/9+e1\"}"},
		"JSON, line break": {ask{url: "https://api.example.com/", header: header("Content-Type", jsonType), body: `{"key":"{{secret:crlf}}"}`},
			"POST https://api.example.com/\nhost: \nContent-Type: application/json\n\n{\"key\":\"cnry-7f\\\"3a/9+e1\\r\\nx-admin: 1\"}"},
		"a value that is a placeholder":  {ask{header: header("X-Key", "{{secret:other}}")}, line + "\nhost: \nX-Key: {{secret:key}}\n"},
		"values that make a placeholder": {ask{url: "https://api.example.com/v1?key={{secret:other}}"}, line + "?key=%7B%7Bsecret%3Akey%7D%7D\nhost: \n"},
		"basic":                          {ask{header: header("Authorization", "{{secret:basic}}")}, line + "\nhost: \nAuthorization: Basic dXNlcjpjbnJ5LTdmIjNhLzkrZTE=\n"},
		"basic, said so":                 {ask{header: header("Authorization", "basic {{secret:basic}}")}, line + "\nhost: \nAuthorization: basic dXNlcjpjbnJ5LTdmIjNhLzkrZTE=\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := signed(t, v, c.ask)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAudit(t *testing.T) {
	_, u := signed(t, attackVault(t), ask{
		url:    "https://api.example.com/v1?key={{secret:key}}",
		header: header("X-Key", "{{secret:key}} {{secret:key}}", "Authorization", "{{secret:wild}}", "Content-Type", jsonType), body: `{"key":"{{secret:key}}"}`,
	})
	use := agent.SecretUse{Secret: "key", Version: 3, Method: "POST", Host: "api.example.com", Path: "/v1", Place: "query:key", Agent: "helper", Run: "run1"}
	want := []agent.SecretUse{use, use, use, use}
	want[1].Secret, want[1].Place = "wild", "header:authorization"
	want[2].Place, want[3].Place = "header:x-key", "body:/key"
	if diff := cmp.Diff(want, u.audits); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"key", "wild"}, u.allowed); diff != "" {
		t.Error("each secret is allowed once: ", diff)
	}
}

// Where a secret went is not said without a port that is not the scheme's own.
func TestAuditNamesThePort(t *testing.T) {
	v := vaultMap{}
	v.put(t, "key", agent.SecretValue, canary, "https://api.example.com:8443 header:x-key")
	_, u := signed(t, v, ask{url: "https://api.example.com:8443/v1", header: header("X-Key", "{{secret:key}}")})
	if len(u.audits) != 1 || u.audits[0].Host != "api.example.com:8443" {
		t.Errorf("audited %+v", u.audits)
	}
}

// What a newcomer gets wrong first has a hint of its own.
func TestHints(t *testing.T) {
	for _, tt := range []struct {
		ask
		kind agent.Kind
		hint string
	}{
		{ask{body: `{"key":"{{secret:key}}"}`, header: header("Content-Type", "text/plain;charset=UTF-8")}, agent.Invalid, "say that it is JSON: content-type: application/json"},
		{ask{body: `key={{secret:key}}`, header: header("Content-Type", "text/plain")}, agent.Invalid, "a body of JSON or a form"},
		{ask{url: "https://api.example.com:8443/v1", header: header("Authorization", "{{secret:none}}")}, agent.Denied, "skep secret set none --to 'https://api.example.com:8443/**'"},
	} {
		r, target := tt.request(t)
		u := &user{}
		_, err := New(attackVault(t), nil).Sign(t.Context(), u.use(), r, target)
		wantError(t, err, tt.kind, tt.hint)
	}
}

func TestNoAuditNoSecret(t *testing.T) {
	r, target := ask{header: header("Authorization", "{{secret:key}}")}.request(t)
	u := &user{mute: errors.New("disk full")}
	_, err := New(attackVault(t), nil).Sign(context.Background(), u.use(), r, target)
	wantError(t, err, agent.Unavailable, "could not be written down")
	if r.Header.Get("Authorization") != "{{secret:key}}" {
		t.Error("the secret was put in")
	}
}

func TestNotGranted(t *testing.T) {
	refused := &agent.Error{Kind: agent.Denied, Msg: "not granted"}
	u := &user{deny: refused}
	for _, name := range []string{"key", "missing"} { // which of them exists does not show
		r, target := ask{header: header("Authorization", "{{secret:"+name+"}}")}.request(t)
		if _, err := New(attackVault(t), nil).Sign(context.Background(), u.use(), r, target); !errors.Is(err, refused) || len(u.audits) > 0 {
			t.Errorf("%v", err)
		}
	}
}

func TestBodyLimit(t *testing.T) {
	const head, tail = `{"key":"{{secret:key}}","x":"`, `"}`
	body := head + strings.Repeat("x", maxBody-len(head+tail)) + tail
	if got, _ := signed(t, attackVault(t), typed(jsonType, body)); !strings.Contains(got, `"key":"cnry`) {
		t.Error("not replaced in a body of just 1 MiB")
	}
	r, target := typed(jsonType, strings.Replace(body, head, head+"x", 1)).request(t)
	if _, err := New(attackVault(t), nil).Sign(context.Background(), new(user).use(), r, target); err != nil {
		t.Fatal(err)
	}
	_, err := io.ReadAll(r.Body)
	wantError(t, err, agent.Invalid, "more than 1 MiB")
}

func TestLongBodyWithoutPlaceholder(t *testing.T) {
	body := strings.Repeat("x{{secret", 3*maxBody/9)
	for _, length := range []int64{0, -1} {
		r, target := ask{body: body, length: length, header: header("Authorization", "{{secret:key}}")}.request(t)
		if _, err := New(attackVault(t), nil).Sign(context.Background(), new(user).use(), r, target); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r.Body); string(b) != body || err != nil {
			t.Errorf("%d bytes, %v", len(b), err)
		}
	}
}

// What a caller keeps for the next hop of a redirect must not have the secret in it.
func TestOriginalStays(t *testing.T) {
	r, target := ask{url: "https://api.example.com/v1?key={{secret:key}}", header: header("Authorization", "{{secret:key}}")}.request(t)
	u, h := r.URL, r.Header
	if _, err := New(attackVault(t), nil).Sign(context.Background(), new(user).use(), r, target); err != nil {
		t.Fatal(err)
	}
	if h.Get("Authorization") != "{{secret:key}}" || u.RawQuery != "key={{secret:key}}" || r.Header.Get("Authorization") != canary {
		t.Errorf("%v %v", h, u)
	}
}

func TestBodyCanBeSentAgain(t *testing.T) {
	r, target := typed(jsonType, `{"key":"{{secret:key}}"}`).request(t)
	if _, err := New(attackVault(t), nil).Sign(context.Background(), new(user).use(), r, target); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		body, err := r.GetBody()
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(body); err != nil || string(b) != `{"key":"cnry-7f\"3a/9+e1"}` || int64(len(b)) != r.ContentLength {
			t.Errorf("%q, %v, length %d", b, err, r.ContentLength)
		}
	}
}

func TestScrubsFieldsOfTypedSecrets(t *testing.T) {
	v := attackVault(t)
	v.put(t, "aws2", agent.SecretAWS, `{"access_key_id":"AKID","secret_access_key":"wJalrXUtnFEMI","session_token":"FwoGZXIvYXdz","region":"eu-west-1","service":"x"}`,
		"https://api.example.com header:authorization")
	i := New(v, nil)
	const text = "user:" + canary + " dXNlcjpjbnJ5LTdmIjNhLzkrZTE= " + canary + " wJalrXUtnFEMI FwoGZXIvYXdz"
	for name, want := range map[string]string{
		"{{secret:basic}}": "[secret] [secret] [secret] wJalrXUtnFEMI FwoGZXIvYXdz",
		"{{secret:aws2}}":  strings.Replace(text, "wJalrXUtnFEMI FwoGZXIvYXdz", "[secret] [secret]", 1),
	} {
		r, target := ask{header: header("Authorization", name)}.request(t)
		s, err := i.Sign(context.Background(), new(user).use(), r, target)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.String(text); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// A secret that was deleted and made anew has version 1 again: what is kept for it must be of its new value.
func TestNewValue(t *testing.T) {
	v := vaultMap{}
	i := New(v, nil)
	for _, value := range []string{"first-value", "second-value"} {
		v.put(t, "key", agent.SecretValue, value, "https://api.example.com header:authorization")
		r, target := ask{header: header("Authorization", "{{secret:key}}")}.request(t)
		s, err := i.Sign(context.Background(), new(user).use(), r, target)
		if err != nil || r.Header.Get("Authorization") != value || s.String(value) != "[secret]" {
			t.Errorf("%q, scrubbed %q, %v", r.Header.Get("Authorization"), s.String(value), err)
		}
	}
}

func BenchmarkSign(b *testing.B) {
	v := vaultMap{}
	v.put(b, "key", agent.SecretValue, "ghp_abcdefghijklmnopqrstuvwxyz012345", "https://api.example.com header:authorization")
	i := New(v, nil)
	use := new(user).use()
	use.Audit = func(context.Context, agent.SecretUse) error { return nil }
	use.Allow = func(context.Context, string) error { return nil }
	for name, auth := range map[string]string{"value": "Bearer {{secret:key}}", "none": "Bearer of nothing"} {
		b.Run(name, func(b *testing.B) {
			r, target := ask{header: header("Accept", "application/json", "User-Agent", "helper/1.0 (test)", "Content-Type", jsonType)}.request(b)
			h := r.Header
			b.ReportAllocs()
			for b.Loop() {
				r.Header = h.Clone()
				r.Header["Authorization"] = []string{auth}
				if _, err := i.Sign(context.Background(), use, r, target); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

var _ Doer = http.DefaultClient
