package python

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/grant"
	granthttp "github.com/skep-dev/skep/host/grant/http"
	"github.com/skep-dev/skep/host/grant/http/clienttest"
)

const requesting = `
import skep

def get(url):
    r = skep.fetch(url, headers={"Authorization": f"Bearer {skep.secret('api')}"})
    return [r.status, r.ok, r.text(), r.headers["x-two"], repr(r)]
def post(url): return skep.fetch(url, body={"a": "é"}).text()
def put(url): return skep.fetch(url, method="PUT", headers=[("X-A", "1")], body=b"\x00").text()
def parse(url): return skep.fetch(url + "/json").json()
def refused(url):
    try:
        skep.fetch("nowhere")
    except skep.CallError as e:
        return [e.kind, e.message]
def names(url):
    bad = []
    for name in ["", "A", "-a", "a}}", "a\n", None, "é", "a" * 64]:
        try:
            skep.secret(name)
        except ValueError as e:
            bad.append("is not the name of a secret" in str(e))
    return [bad, skep.secret("a.b-c_1")]
`

func TestRequests(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/json" {
			_, _ = io.WriteString(w, `{"n":1}`)
			return
		}
		w.Header().Add("X-Two", "1")
		w.Header().Add("X-Two", "2")
		b, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s%s %s %q", r.Method, r.Header.Get("Authorization"), r.Header.Get("X-A"), r.Header.Get("Content-Type"), b)
	}))
	t.Cleanup(server.Close)
	clients := clienttest.New()
	t.Cleanup(clients.Close)
	table := granthttp.New(clients.Client, nil)
	t.Cleanup(table.Close)
	env := cell.Env{Calls: grant.NewDoor(agent.DefaultLimits(), table.Handlers(), nil).Call}
	a := load(t, "main.py", requesting)
	for function, want := range map[string]string{
		"get":     `[200,true,"GET Bearer {{secret:api}}  \"\"","1, 2","<Response 200>"]`,
		"post":    `POST  application/json "{\"a\":\"é\"}"`,
		"put":     `PUT 1  "\x00"`,
		"parse":   `{"n":1}`,
		"refused": `["invalid","\"nowhere\" is not an absolute URL"]`,
		"names":   `[[true,true,true,true,true,true,true,true],"{{secret:a.b-c_1}}"]`,
	} {
		got, err := call(t, a, function, agent.Text(server.URL), env)
		if err != nil || string(got.Body) != want {
			t.Errorf("%s: got %s, %v, want %s", function, got.Body, err, want)
		}
	}
}
