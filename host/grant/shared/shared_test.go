package shared

import (
	"context"
	"strings"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
)

type kept struct{ abi.Shared }

func (k *kept) Get(context.Context) (abi.Shared, error) { return k.Shared, nil }

func (k *kept) Set(_ context.Context, in abi.SharedSet) (int64, error) {
	k.State = in.State
	k.Version++
	return k.Version, nil
}

func TestCalls(t *testing.T) {
	k, handlers := &kept{}, map[string]grant.Handler{}
	Add(handlers, k)
	call := func(name, in string) string {
		out, err := handlers[name](t.Context(), []byte(in))
		if err != nil {
			return agent.KindOf(err).String()
		}
		return string(out)
	}
	most := `"` + strings.Repeat("x", MaxState-2) + `"`
	for _, tt := range []struct{ name, in, want string }{
		{abi.CallSharedGet, "", `{"version":0}`}, {abi.CallSharedGet, "{}", `{"version":0}`}, {abi.CallSharedGet, `{"x":1}`, "invalid"},
		{abi.CallSharedSet, `{"state": {"a" : [1, 2]} }`, `{"version":1}`}, {abi.CallSharedGet, "", `{"state":{"a":[1,2]},"version":1}`},
		{abi.CallSharedSet, `{"state":null,"if":1}`, `{"version":2}`}, {abi.CallSharedSet, `{}`, "invalid"}, {abi.CallSharedSet, `{"state":`, "invalid"},
		{abi.CallSharedSet, `{"state":` + most + `}`, `{"version":3}`}, {abi.CallSharedSet, `{"state":[` + most + `]}`, "exhausted"},
		{abi.CallSharedSet, `{"state":[` + strings.Repeat(" ", MaxState) + `]}`, `{"version":4}`},
	} {
		if got := call(tt.name, tt.in); got != tt.want {
			t.Errorf("%s %.60s: %.60s, want %s", tt.name, tt.in, got, tt.want)
		}
	}
}
