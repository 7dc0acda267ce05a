package gemini

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
)

func TestLargeRequestsAreReadInLinearTime(t *testing.T) {
	each := func(n int, format string) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(format, i)
		}
		return strings.Join(list, ",")
	}
	for name, body := range map[string]func(n int) string{
		"fields": func(n int) string { return `{"contents":"a",` + each(n, `"aB%d":0`) + `}` },
		"thoughts": func(n int) string {
			return `{"contents":{"role":"model","parts":[` + each(n, `{"text":"thought %d","thought":true}`) + `]}}`
		},
		"answers by id": func(n int) string {
			return `{"contents":[{"role":"model","parts":[` + each(n, `{"functionCall":{"id":"c%d","name":"f"}}`) + `]},{"parts":[` + each(n, `{"functionResponse":{"id":"c%d"}}`) + `]}]}`
		},
		"answers by name": func(n int) string {
			return `{"contents":[{"role":"model","parts":[` + each(n, `{"functionCall":{"name":"f","args":{"n":%d}}}`) + `]},{"parts":[` +
				each(n, `{"functionResponse":{"name":"f","response":{"n":%d}}}`) + `]}]}`
		},
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Linear(t, func(n int) func() {
				b := []byte(body(n))
				return func() {
					if _, err := Codec.Decode(wire.Generate, askPath, http.Header{}, b); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

func TestAnswersFindTheirCalls(t *testing.T) {
	r := decode(t, `{"contents":[
		{"role":"model","parts":[{"functionCall":{"name":"f"}},{"functionCall":{"id":"x","name":"f"}},{"functionCall":{"name":"g"}},{"functionCall":{"name":"f"}}]},
		{"parts":[{"functionResponse":{"id":"x","response":{"output":"1"}}},{"functionResponse":{"name":"f","response":{"output":"2"}}},
			{"functionResponse":{"name":"f","response":{"output":"3"}}},{"functionResponse":{"name":"g","response":{"output":"4"}}}]}]}`)
	for i, want := range []string{"x f 1", "skep_call_0 f 2", "skep_call_3 f 3", "skep_call_2 g 4"} {
		a := r.Messages[1].Parts[i].Result
		if got := a.CallID + " " + a.Name + " " + a.Parts[0].Text; got != want {
			t.Errorf("answer %d is %s, want %s", i, got, want)
		}
	}
	_, err := Codec.Decode(wire.Generate, askPath, nil, []byte(`{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f"}}]},
		{"parts":[{"functionResponse":{"name":"f"}},{"functionResponse":{"name":"f"}}]}]}`))
	if err == nil || !strings.Contains(err.Error(), "contents[1].parts[1].functionResponse: no call of f waits for it") {
		t.Errorf("a second answer to one call: %v", err)
	}
}
