package inject

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault/scrub"
)

const (
	formType = "application/x-www-form-urlencoded"
	jsonType = "application/json"
)

func attackVault(t *testing.T) vaultMap {
	v := vaultMap{}
	v.put(t, "key", agent.SecretValue, canary,
		"POST,GET https://api.example.com/v1/** header:authorization header:x-key header:cookie header:host query:key body:key body:/key body:/a/0/b~1c",
		"GET,POST https://api.example.com/v1 header:authorization header:x-key header:cookie header:host query:key body:key body:/key body:/a/0/b~1c body:/x~0y")
	v.put(t, "wild", agent.SecretValue, canary, "https://*.example.com header:authorization")
	v.put(t, "nowhere", agent.SecretValue, canary)
	v.put(t, "crlf", agent.SecretValue, canary+"\r\nx-admin: 1", "https://api.example.com header:x-key query:key body:/key")
	v.put(t, "nul", agent.SecretValue, canary+"\x00", "https://api.example.com header:x-key")
	v.put(t, "newline", agent.SecretValue, canary+"\n", "https://api.example.com header:x-key")
	v.put(t, "bytes", agent.SecretValue, canary+"\xff", "https://api.example.com body:/key")
	v.put(t, "basic", agent.SecretBasic, `{"username":"user","password":`+quote(canary)+`}`, "https://api.example.com header:authorization header:x-key query:key")
	v.put(t, "colon", agent.SecretBasic, `{"username":"us:er","password":`+quote(canary)+`}`, "https://api.example.com header:authorization")
	v.put(t, "broken", agent.SecretBasic, canary, "https://api.example.com header:authorization")
	v.put(t, "aws", agent.SecretAWS, `{"access_key_id":"AKID","secret_access_key":`+quote(canary)+`}`, "https://api.example.com header:authorization")
	v.putIn(t, "other", "theirs", agent.SecretValue, canary, "https://api.example.com header:authorization")
	return v
}

func header(pairs ...string) [][2]string {
	var out [][2]string
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, [2]string{pairs[i], pairs[i+1]})
	}
	return out
}

func typed(t, body string) ask { return ask{header: header("Content-Type", t), body: body} }

// TestAttacks has requests that try to get a secret to where it must not go, or out as text. None may be sent: the error says
// why, and neither it nor what is left of the request holds the value.
func TestAttacks(t *testing.T) {
	const auth, ph = "Authorization", "{{secret:key}}"
	zipped := func(s string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(s))
		_ = w.Close()
		return b.String()
	}
	wide := func(s string) string {
		var b strings.Builder
		for _, u := range utf16.Encode([]rune(s)) {
			b.Write([]byte{byte(u), byte(u >> 8)})
		}
		return b.String()
	}
	multipart := "--x\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\n" + ph + "\r\n--x--\r\n"
	for name, c := range map[string]struct {
		ask
		kind agent.Kind
		say  string
	}{
		"path":                      {ask{url: "https://api.example.com/v1/{{secret:key}}"}, agent.Invalid, `"key" stands in the path`},
		"path, encoded":             {ask{url: "https://api.example.com/v1/%7B%7Bsecret%3Akey%7D%7D"}, agent.Invalid, "in the path"},
		"path, encoded twice":       {ask{url: "https://api.example.com/v1/%257B%257Bsecret%253Akey%257D%257D"}, agent.Invalid, "in the path"},
		"path, in part":             {ask{url: "https://api.example.com/v1/{%7Bsecr%65t:key}}"}, agent.Invalid, "in the path"},
		"fragment":                  {ask{url: "https://api.example.com/v1#{{secret:key}}"}, agent.Invalid, "in the fragment"},
		"user":                      {ask{tweak: func(r *http.Request) { r.URL.User = url.User(ph) }}, agent.Invalid, "in the user"},
		"password":                  {ask{tweak: func(r *http.Request) { r.URL.User = url.UserPassword("u", ph) }}, agent.Invalid, "in the user"},
		"host":                      {ask{tweak: func(r *http.Request) { r.URL.Host = ph + ".evil.example" }}, agent.Invalid, "in the host"},
		"opaque":                    {ask{tweak: func(r *http.Request) { r.URL.Opaque = ph }}, agent.Invalid, "in the URL"},
		"method":                    {ask{tweak: func(r *http.Request) { r.Method = ph }}, agent.Invalid, "in the method"},
		"host field":                {ask{tweak: func(r *http.Request) { r.Host = ph }}, agent.Invalid, "in the host header"},
		"host header":               {ask{header: header("Host", ph)}, agent.Invalid, "no secret can go"},
		"another host header":       {ask{header: header(auth, ph), tweak: func(r *http.Request) { r.Host = "evil.example" }}, agent.Invalid, "another host"},
		"transfer-encoding":         {ask{header: header("Transfer-Encoding", ph)}, agent.Invalid, "no secret can go"},
		"connection":                {ask{header: header("connection", ph)}, agent.Invalid, "no secret can go"},
		"proxy":                     {ask{header: header("Proxy-Authorization", ph)}, agent.Invalid, "no secret can go"},
		"header's name":             {ask{header: header("x-"+ph, "v")}, agent.Invalid, "in the name of a header"},
		"trailer":                   {ask{tweak: func(r *http.Request) { r.Trailer = http.Header{"X": {ph}} }}, agent.Invalid, "in a trailer"},
		"unbound header":            {ask{header: header("X-Other", ph)}, agent.Denied, "header:x-other"},
		"unbound cookie":            {ask{header: header("Cookie", "a={{secret:wild}}")}, agent.Denied, "header:cookie"},
		"header, percent":           {ask{header: header(auth, "%7B%7Bsecret:key%7D%7D")}, agent.Invalid, "spelling"},
		"header, base64":            {ask{header: header(auth, "Basic "+base64.StdEncoding.EncodeToString([]byte("user:"+ph)))}, agent.Invalid, "kind basic"},
		"header, JSON escapes":      {ask{header: header(auth, `\u007b{secret:key}}`)}, agent.Invalid, "spelling"},
		"header, one of each":       {ask{header: header(auth, ph+" %7B%7Bsecret:key}}")}, agent.Invalid, "spelling"},
		"blank in it":               {ask{header: header(auth, "{{ secret:key }}")}, agent.Invalid, "spelling"},
		"upper case":                {ask{header: header(auth, "{{SECRET:key}}")}, agent.Invalid, "spelling"},
		"no end":                    {ask{header: header(auth, "{{secret:key")}, agent.Invalid, "has no end"},
		"nested":                    {ask{header: header(auth, "{{secret:{{secret:key}}}}")}, agent.Invalid, "is not valid"},
		"no name":                   {ask{header: header(auth, "{{secret:}}")}, agent.Invalid, "is not valid"},
		"name with a path":          {ask{header: header(auth, "{{secret:../other/theirs}}")}, agent.Invalid, "is not valid"},
		"name with a NUL":           {ask{header: header(auth, "{{secret:key\x00}}")}, agent.Invalid, "is not valid"},
		"unknown":                   {ask{header: header(auth, "{{secret:missing}}")}, agent.Denied, `no secret "missing"`},
		"of another app":            {ask{header: header(auth, "{{secret:theirs}}")}, agent.Denied, `no secret "theirs"`},
		"bound to nothing":          {ask{header: header(auth, "{{secret:nowhere}}")}, agent.Denied, "skep secret bind nowhere --bind 'https://api.example.com/** header:authorization'"},
		"other method":              {ask{method: "DELETE", header: header(auth, ph)}, agent.Denied, "is not bound to DELETE https://api.example.com/v1"},
		"other port":                {ask{url: "https://api.example.com:8443/v1", header: header(auth, ph)}, agent.Denied, "is not bound to GET https://api.example.com:8443/v1"},
		"other scheme":              {ask{url: "http://api.example.com/v1", header: header(auth, ph)}, agent.Denied, "is not bound to GET http://"},
		"other path":                {ask{url: "https://api.example.com/v2", header: header(auth, ph)}, agent.Denied, "is not bound"},
		"path with an escaped dot":  {ask{url: "https://api.example.com/v1/..%2fv2", header: header(auth, ph)}, agent.Denied, "is not bound"},
		"other host":                {ask{url: "https://evil.example/v1", header: header(auth, ph)}, agent.Denied, "is not bound to GET https://evil.example/v1"},
		"host that ends so":         {ask{url: "https://api.example.com.evil.example/v1", header: header(auth, ph)}, agent.Denied, "is not bound"},
		"wildcard, the name itself": {ask{url: "https://example.com/", header: header(auth, "{{secret:wild}}")}, agent.Denied, "is not bound"},
		"wildcard, no dot":          {ask{url: "https://evilexample.com/", header: header(auth, "{{secret:wild}}")}, agent.Denied, "is not bound"},
		"judged as another": {ask{url: "https://evil.example/v1", header: header(auth, ph), target: func(r *agent.Request) { r.Host = "api.example.com" }},
			agent.Internal, "is not the one that was judged"},

		"query, unbound":              {ask{url: "https://api.example.com/v1?q={{secret:key}}"}, agent.Denied, "query:q"},
		"query's name":                {ask{url: "https://api.example.com/v1?{{secret:key}}=1"}, agent.Invalid, "in the name of a query parameter"},
		"query, encoded twice":        {ask{url: "https://api.example.com/v1?key=%257B%257Bsecret%253Akey%257D%257D"}, agent.Invalid, "spelling"},
		"query, base64":               {ask{url: "https://api.example.com/v1?key=" + base64.RawURLEncoding.EncodeToString([]byte(ph))}, agent.Invalid, "spelling"},
		"query, broken escapes":       {ask{url: "https://api.example.com/v1?key={{secret:key}}%zz"}, agent.Invalid, "percent-encoded"},
		"query, twice":                {ask{url: "https://api.example.com/v1?key={{secret:key}}&k%65y=2"}, agent.Invalid, "there twice"},
		"query, semicolon":            {ask{url: "https://api.example.com/v1?a=1;key={{secret:key}}"}, agent.Denied, "query:a"},
		"query, across two":           {ask{url: "https://api.example.com/v1?key={{secret:&x=key}}"}, agent.Invalid, "has no end"},
		"form, unbound":               {typed(formType, "other={{secret:key}}"), agent.Denied, "body:other"},
		"form's name":                 {typed(formType, "{{secret:key}}=1"), agent.Invalid, "in the name of a form's field"},
		"form, twice":                 {typed(formType, "key={{secret:key}}&key=1"), agent.Invalid, "there twice"},
		"form, of JSON's place":       {typed(formType, "%2Fa={{secret:key}}"), agent.Denied, "body:/a"},
		"JSON, unbound":               {typed(jsonType, `{"other":"{{secret:key}}"}`), agent.Denied, "body:/other"},
		"JSON, deeper":                {typed(jsonType, `{"x":{"key":"{{secret:key}}"}}`), agent.Denied, "body:/x/key"},
		"JSON's key":                  {typed(jsonType, `{"{{secret:key}}":1}`), agent.Invalid, "in the name of a field"},
		"JSON's key, escaped":         {typed(jsonType, `{"\u007b\u007bsecret:key}}":1}`), agent.Invalid, "in the name of a field"},
		"JSON, twice":                 {typed(jsonType, `{"key":"{{secret:key}}","k\u0065y":1}`), agent.Invalid, "twice in one object"},
		"JSON, twice elsewhere":       {typed(jsonType, `{"key":"{{secret:key}}","a":[{"b":1,"b":2}]}`), agent.Invalid, "twice in one object"},
		"JSON, not valid":             {typed(jsonType, `{"key":"{{secret:key}}"`), agent.Invalid, "not valid JSON"},
		"JSON, two texts":             {typed(jsonType, `{"key":"{{secret:key}}"} {}`), agent.Invalid, "not valid JSON"},
		"JSON, byte order mark":       {typed(jsonType, "\ufeff"+`{"key":"{{secret:key}}"}`), agent.Invalid, "not valid JSON"},
		"JSON, not UTF-8":             {typed(jsonType, `{"key":"{{secret:key}}","x":"`+"\xff"+`"}`), agent.Invalid, "not valid JSON"},
		"JSON in JSON":                {typed(jsonType, `{"key":"{\"k\":\"\\u007b{secret:key}}\"}"}`), agent.Invalid, "spelling"},
		"JSON, deep":                  {typed(jsonType, strings.Repeat("[", 300)+`"{{secret:key}}"`+strings.Repeat("]", 300)), agent.Invalid, "nests deeper than 200"},
		"JSON, huge":                  {typed(jsonType, `{"key":"{{secret:key}}","x":"`+strings.Repeat("x", maxBody)+`"}`), agent.Invalid, "more than 1 MiB"},
		"JSON, a text":                {typed(jsonType, `"{{secret:key}}"`), agent.Denied, "at body:"},
		"JSON, UTF-16":                {typed(jsonType, wide(`{"key":"{{secret:key}}"}`)), agent.Invalid, "not valid JSON"},
		"JSON, UTF-16, said so":       {typed(jsonType+"; charset=utf-16", wide(`{"key":"{{secret:key}}"}`)), agent.Invalid, "another character set"},
		"JSON, UTF-7, said so":        {typed(jsonType+"; charset=utf-7", `{"key":"{{secret:key}}"}`), agent.Invalid, "another character set"},
		"JSON, said to be zipped":     {ask{header: header("Content-Type", jsonType, "Content-Encoding", "gzip"), body: `{"key":"{{secret:key}}"}`}, agent.Invalid, "content encoding"},
		"two content types":           {ask{header: header("Content-Type", jsonType, "Content-Type", formType), body: `{"key":"{{secret:key}}"}`}, agent.Invalid, "one content type"},
		"no content type":             {ask{body: `{"key":"{{secret:key}}"}`}, agent.Invalid, "one content type"},
		"multipart":                   {typed("multipart/form-data; boundary=x", multipart), agent.Invalid, "of type multipart/form-data"},
		"text":                        {typed("text/plain", "key={{secret:key}}"), agent.Invalid, "of type text/plain"},
		"text, base64":                {typed("text/plain", base64.StdEncoding.EncodeToString([]byte("the "+ph))), agent.Invalid, "of type text/plain"},
		"streamed":                    {ask{header: header("Content-Type", jsonType), body: `{"key":"{{secret:key}}"}`, length: -1}, agent.Invalid, "length is not known"},
		"longer than it says":         {ask{header: header("Content-Type", jsonType), body: `{"key":"{{secret:key}}"}`, length: 5}, agent.Invalid, "and the request says 5"},
		"shorter than it says":        {ask{header: header("Content-Type", jsonType), body: `{"key":"{{secret:key}}"}`, length: 50}, agent.Invalid, "and the request says 50"},
		"many":                        {typed(jsonType, `{"key":"`+strings.Repeat(ph, 65)+`"}`), agent.Invalid, "more than 64"},
		"line break in the value":     {ask{header: header("X-Key", "{{secret:crlf}}")}, agent.Invalid, "cannot stand in a header"},
		"NUL in the value":            {ask{header: header("X-Key", "{{secret:nul}}")}, agent.Invalid, "cannot stand in a header"},
		"line break at its end":       {ask{header: header("X-Key", "{{secret:newline}}")}, agent.Invalid, "printf"},
		"bytes in JSON":               {typed(jsonType, `{"key":"{{secret:bytes}}"}`), agent.Invalid, "not UTF-8"},
		"basic elsewhere":             {ask{header: header("X-Key", "{{secret:basic}}")}, agent.Invalid, "authorization header, alone"},
		"basic in a query":            {ask{url: "https://api.example.com/v1?key={{secret:basic}}"}, agent.Invalid, "authorization header, alone"},
		"basic as a token":            {ask{header: header(auth, "Bearer {{secret:basic}}")}, agent.Invalid, "authorization header, alone"},
		"basic and more":              {ask{header: header(auth, "Basic {{secret:basic}}x")}, agent.Invalid, "authorization header, alone"},
		"two authorizations":          {ask{header: header(auth, "{{secret:basic}}", "authorization", "Basic x")}, agent.Invalid, "authorization header, alone"},
		"basic with a colon":          {ask{header: header(auth, "{{secret:colon}}")}, agent.Invalid, "username with"},
		"basic, not JSON":             {ask{header: header(auth, "{{secret:broken}}")}, agent.Invalid, "is not the JSON"},
		"aws and more":                {ask{header: header(auth, "AWS4 {{secret:aws}}")}, agent.Invalid, "authorization header, alone"},
		"aws, of which region":        {ask{header: header(auth, "{{secret:aws}}")}, agent.Invalid, "region and service"},
		"one allowed, one not":        {ask{url: "https://api.example.com/v1?key={{secret:key}}", header: header("X-Key", "{{secret:wild}}")}, agent.Denied, `"wild"`},
		"allowed, and text in a body": {ask{header: header(auth, ph, "Content-Type", "text/plain"), body: "{{secret:key}}"}, agent.Invalid, "of type text/plain"},
	} {
		t.Run(name, func(t *testing.T) {
			r, target := c.request(t)
			i := New(attackVault(t), nil)
			_, err := i.Sign(context.Background(), new(user).use(), r, target)
			sent := ""
			if err == nil {
				sent, err = dump(r)
			}
			wantError(t, err, c.kind, c.say)
			e := agent.AsError(err)
			if s := scrub.New([]byte(canary)); s.In([]byte(e.Error()+e.Hint)) || s.In([]byte(sent)) {
				t.Errorf("the value is out: %v, %q, %q", e, e.Hint, sent)
			}
			if strings.Contains(sent, "secret:key}}") {
				t.Errorf("sent as text: %q", sent)
			}
		})
	}

	t.Run("no placeholders", func(t *testing.T) {
		for name, a := range map[string]ask{
			"look-alikes":       {header: header(auth, "｛｛secret:key｝｝ ⦃⦃secret:key⦄⦄ {\u200b{secret:key}}"), body: "❴❴secret:key❵❵"},
			"zipped":            {header: header("Content-Type", jsonType, "Content-Encoding", "gzip"), body: zipped(`{"key":"{{secret:key}}"}`)},
			"of other systems":  typed("text/yaml", "token: ${{ secrets.KEY }} {{ .secret }} {{secrets:key}} {secret:key}"),
			"JSON, not valid":   typed(jsonType, `{"a":1,"a":2`),
			"form, not valid":   typed(formType, "a=%zz&&=&b"),
			"reversed":          {header: header(auth, "}}yek:terces{{")},
			"streamed":          {header: header("Content-Type", jsonType), body: `{"key":"{{secret"}`, length: -1},
			"said as rot13":     {header: header(auth, "{{frperg:xrl}}")},
			"only an end":       {header: header(auth, "key}}")},
			"apart":             {header: header("A", "{{secr", "B", "et:key}}")},
			"with every symbol": {url: "https://api.example.com/v1/a%20b?x=%7B%7B&y=a+b&z", body: strings.Repeat("{", 100)},
		} {
			t.Run(name, func(t *testing.T) {
				before, _ := a.request(t)
				r, target := a.request(t)
				u := new(user)
				s, err := New(attackVault(t), nil).Sign(context.Background(), u.use(), r, target)
				if s != nil || err != nil || len(u.allowed)+len(u.audits) > 0 {
					t.Fatalf("%v, %v, used %v", s, err, u.allowed)
				}
				got, err1 := dump(r)
				want, err2 := dump(before)
				if got != want || err1 != nil || err2 != nil {
					t.Errorf("sent %q, %v; want %q, %v", got, err1, want, err2)
				}
			})
		}
	})
}
