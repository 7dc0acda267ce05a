package http_test

import (
	"context"
	"encoding/json"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/host/grant/http"
	"github.com/skep-dev/skep/host/grant/http/clienttest"
)

// rig is a table in front of a real server on loopback.
type rig struct {
	t *testing.T
	*http.Table
	*clienttest.Clients
	url    string
	door   *grant.Door
	client http.Client // in place of those of Clients
}

func newRig(t *testing.T, handler nethttp.HandlerFunc, o *http.Options) *rig {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	r := &rig{t: t, url: server.URL, Clients: clienttest.New()}
	t.Cleanup(r.Clients.Close)
	r.Table = http.New(func() http.Client {
		if r.client != nil {
			return r.client
		}
		return r.Client()
	}, o)
	t.Cleanup(r.Table.Close)
	r.door = grant.NewDoor(agent.DefaultLimits(), r.Handlers(), nil)
	return r
}

// use has the next requests made by another client.
func (r *rig) use(c http.Client) { r.client = c }

func (r *rig) call(ctx context.Context, name string, in []byte) ([]byte, error) {
	return r.door.Call(ctx, name, in)
}

// open begins an exchange and returns what its answer brought.
func (r *rig) open(in abi.HTTPOpen, body string) (abi.HTTPHead, string, error) {
	in.URL = r.url + in.URL
	frame, err := abi.AppendHTTPHead(nil, in, []byte(body))
	if err != nil {
		r.t.Fatal(err)
	}
	return r.headed(r.call(r.t.Context(), abi.CallHTTPOpen, frame))
}

func (r *rig) head(id uint32) (abi.HTTPHead, string, error) {
	return r.headed(r.call(r.t.Context(), abi.CallHTTPHead, abi.AppendHTTPID(nil, id)))
}

func (r *rig) headed(out []byte, err error) (abi.HTTPHead, string, error) {
	var head abi.HTTPHead
	if err != nil {
		return head, "", err
	}
	text, body, err := abi.SplitHTTPHead(out)
	if err != nil || json.Unmarshal(text, &head) != nil {
		r.t.Errorf("the answer %q cannot be read: %v", out, err)
	}
	return head, string(body), nil
}

func (r *rig) read(id uint32) (piece string, last bool, err error) {
	out, err := r.call(r.t.Context(), abi.CallHTTPRead, abi.AppendHTTPID(nil, id))
	if err != nil {
		return "", false, err
	}
	last, b, err := abi.SplitHTTPRead(out)
	return string(b), last, err
}

func (r *rig) write(id uint32, last bool, piece string) error {
	_, err := r.call(r.t.Context(), abi.CallHTTPWrite, abi.AppendHTTPWrite(nil, id, last, []byte(piece)))
	return err
}

func (r *rig) close(id uint32) {
	if _, err := r.call(r.t.Context(), abi.CallHTTPClose, abi.AppendHTTPID(nil, id)); err != nil {
		r.t.Error(err)
	}
}

func wants(t *testing.T, what string, err error, kind agent.Kind, limit agent.Limit) {
	t.Helper()
	if e := agent.AsError(err); e == nil || e.Kind != kind || e.Limit != limit {
		t.Errorf("%s: got %v, want %s %s", what, err, kind, limit)
	}
}

func echo(w nethttp.ResponseWriter, r *nethttp.Request) {
	b, _ := io.ReadAll(r.Body)
	_, _ = w.Write(append([]byte(r.Method+" "+r.Header.Get("X-A")+" "), b...))
}
