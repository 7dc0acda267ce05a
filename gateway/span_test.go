package gateway_test

import (
	"context"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
)

// spans keeps what it is told.
type spans struct {
	noop.Tracer
	mu   sync.Mutex
	list []*span
}

type span struct {
	noop.Span
	name  string
	told  map[string]any
	bad   bool
	ended int
}

func (s *spans) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := &span{name: name, told: map[string]any{}}
	s.list = append(s.list, sp)
	return ctx, sp
}

func (s *span) IsRecording() bool                { return true }
func (s *span) SetStatus(c codes.Code, _ string) { s.bad = c == codes.Error }
func (s *span) End(...trace.SpanEndOption)       { s.ended++ }
func (s *span) SetAttributes(list ...attribute.KeyValue) {
	for _, kv := range list {
		s.told[string(kv.Key)] = kv.Value.AsInterface()
	}
}

// Each call to a provider is a span with what the conventions for gen_ai have, the figures of the ledger among it.
func TestSpans(t *testing.T) {
	tracer := &spans{}
	r := newRig(t, func(o *gateway.Options) { o.Tracer = tracer })
	up := r.provider("up", agent.MessageProtocol, good)
	r.message("up/m", true)
	up.is(fails(400, "invalid_request_error"))
	r.message("up/m", false)
	if len(tracer.list) != 2 {
		t.Fatalf("there are %d spans", len(tracer.list))
	}
	row := r.usage()[0].Model
	for i, want := range []map[string]any{
		{
			"gen_ai.operation.name": "chat", "gen_ai.provider.name": "up", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": row.Tokens.Input,
			"gen_ai.usage.output_tokens": row.Tokens.Output, "skep.model.call": row.Call, "error.type": nil,
		},
		{"gen_ai.usage.input_tokens": int64(0), "error.type": agent.InvalidRequest.String()},
	} {
		s := tracer.list[i]
		if s.name != "chat m" || s.ended != 1 || s.bad != (i == 1) {
			t.Errorf("span %d: %+v", i, s)
		}
		for k, v := range want {
			if s.told[k] != v {
				t.Errorf("span %d: %s is %v, not %v", i, k, s.told[k], v)
			}
		}
	}
}
