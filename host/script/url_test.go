package script

import (
	"encoding/json"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// TestURLShortcuts compares URLs that need no parser with what the parser makes of them. A space around a URL means nothing,
// and is what leads to the parser.
func TestURLShortcuts(t *testing.T) {
	a := load(t, source(`
		const fields = ["href", "origin", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"];
		const show = (url, base) => {
			try {
				const u = new URL(url, base);
				return fields.map((f) => f + "=" + u[f]).join(" ") + " params=" + [...u.searchParams].join("|");
			} catch (e) {
				return e.name;
			}
		};
		export function compare({ bases, references }) {
			const wrong = [];
			for (const r of references) {
				if (show(r) !== show(" " + r)) wrong.push([r, show(r), show(" " + r)]);
				for (const b of bases) {
					const got = show(r, b), want = show(" " + r, " " + b);
					if (got !== want) wrong.push([r, b, got, want]);
				}
			}
			return wrong;
		}
		export function many() {
			let n = 0;
			for (let i = 0; i < 100; i++) for (const r of ["/x?y=1", "x/y", "?y=1", "#z"]) n += new URL(r, "https://example.com/a/b").href.length;
			return n;
		}`))
	bases := []string{
		"https://example.com", "http://a.b-c.example:8080/a/b/c?q=1#h", "https://localhost/a/", "https://example.com/a%2Fb/c#x", "http://example.com:80/a",
		"https://user:pw@example.com/a/b", "https://127.0.0.1/a", "HTTPS://Example.COM/A/b", "file:///c:/a/b", "mailto:a@b.c", "",
	}
	references := []string{
		"", "/", "//", "///", "/a", "/a/b?c=d#e", "/a//b", "//other.example/x", "/\\other.example", "\\a", "a", "a/b", "a//b", "a/", "a?b", "a#b", ".", "..", "./a", "../a", "a/..",
		"a/.", "a/../b", "a/.b", "a/b.", "a..b", ".a", "/.", "/..", "/./a", "/a/../b", "/%2e/a", "/a/%2E%2e/b", "a/%2e%2e", "a%2e", "%", "%zz", "a%20b", "a b", "a\tb", "a\nb",
		"?", "?a", "?a=b&c=d", "?a'b", "?a\"b", "?a<b", "?a b", "?é", "?a/../b", "?a?b", "?a#b", "?%41", "#", "#a", "#a'b", "#a b", "#a`b", "#a#b", "#é", "#a?b",
		"http:", "http:a", "https:/a", "https:a", "mailto:x", "x:y", "a:b", "/a:b", "a/b:c", ":a", ":", "1:2", "c:/x", "c|/x", "/c:/x", "a|b", "a^b", "a{b}", "a[b]", "a;b", "a,b", "a@b", "@a", "a=b&c",
		"é", "/é", "a'b", "~a", "a~b!c$d", "a*b(c)", "*", "https://example.com", "https://example.com/a/../b", "http://example.com:80/", "https://example.com:443/x", "https://a.b:65536/",
		"https://a.b:99999/", "https://a.b:8080", "https://a.b:0/", "https://a.b:080/", "https://1.2.3.4/", "https://1.2.3/", "https://a.1/", "https://a.0x1/", "https://a.1b/", "https://a_b.example/", "https://-a.example/",
		"https://a-.example/", "https://a..b/", "https://a./", "https://.a/", "https://a.b?", "https://a.b#", "https://a.b?x#", "https://a.b/x%", "https://xn--/", "https://xn--a/", "javascript:alert(1)", "blob:https://a.b/c",
	}
	in, err := json.Marshal(map[string][]string{"bases": bases, "references": references})
	if err != nil {
		t.Fatal(err)
	}
	var wrong [][]string
	out := result(t, a, Call{Function: "compare", Input: agent.JSON(in), Limits: agent.MaxLimits()})
	if err := json.Unmarshal([]byte(out), &wrong); err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Errorf("%q", w)
	}
	// The parser takes more than three million.
	_, u, err := a.Call(t.Context(), Call{Function: "many"})
	if each := u.Fuel / 400; err != nil || each > 400_000 {
		t.Errorf("a plain reference takes fuel of %d, %v", each, err)
	}
}
