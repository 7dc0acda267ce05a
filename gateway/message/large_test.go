package message

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
)

func TestManyForeignThoughtsAreDroppedInLinearTime(t *testing.T) {
	wiretest.Linear(t, func(n int) func() {
		body := []byte(`{"model":"m","messages":[{"role":"assistant","content":[{"type":"text","text":"a"}` +
			strings.Repeat(`,{"type":"thinking","signature":""}`, n) + `]}]}`)
		return func() {
			c, err := Codec.Patch(wire.Generate, askPath, "", nil, body, target)
			if err != nil || strings.Contains(string(c.Body), "thinking") {
				t.Errorf("%d bytes stay, error %v", len(c.Body), err)
			}
		}
	})
}

func TestManyToolsAreChosenAmongInLinearTime(t *testing.T) {
	wiretest.Linear(t, func(n int) func() {
		r := &wire.Request{Messages: []wire.Message{{Parts: []wire.Part{{Text: "a"}}}}, Choice: wire.Choice{Kind: wire.ChoiceAuto}}
		for i := range n {
			name := fmt.Sprintf("tool_%06d", i)
			r.Tools = append(r.Tools, wire.Tool{Name: name})
			r.Choice.Among = append(r.Choice.Among, name)
		}
		return func() {
			if _, err := Codec.Encode(wire.Generate, r, target); err != nil {
				t.Error(err)
			}
		}
	})
}
