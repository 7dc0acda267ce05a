package telemetry

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestTraceparent(t *testing.T) {
	if got := Traceparent(WithTraceparent(t.Context(), parent)); got != parent {
		t.Errorf("got %q", got)
	}
	for _, bad := range []string{
		"", "junk", "ff" + parent[2:], parent + "-more", strings.ToUpper(parent), strings.Replace(parent, "00f067aa0ba902b7", "0000000000000000", 1),
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01",
	} {
		if got := Traceparent(WithTraceparent(t.Context(), bad)); got != "" {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

func TestLogger(t *testing.T) {
	var out bytes.Buffer
	log := Logger(Logger(slog.New(slog.NewTextHandler(&out, nil)))).With("part", "x")
	ctx := With(WithTraceparent(t.Context(), parent), slog.String("request", "r1"))
	log.InfoContext(With(ctx, slog.String("run", "r2")), "hello")
	for _, want := range []string{"part=x", "request=r1", "run=r2", "trace=4bf92f3577b34da6a3ce929d0e0e4736", "span=00f067aa0ba902b7"} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("%s is not there once: %s", want, &out)
		}
	}
	out.Reset()
	log.InfoContext(ctx, "hello")
	if strings.Contains(out.String(), "run=") {
		t.Errorf("the run of another context: %s", &out)
	}
}

// received is what a collector got, decoded by the protocol's own messages.
func received(t *testing.T, r *http.Request) *collector.ExportTraceServiceRequest {
	t.Helper()
	zip, err := gzip.NewReader(r.Body)
	if err != nil {
		t.Error(err)
		return nil
	}
	b, err := io.ReadAll(zip)
	if err != nil {
		t.Error(err)
	}
	// The JSON encoding of OTLP has ids in hex where the one of protocol buffers has base64.
	b = regexp.MustCompile(`"(traceId|spanId|parentSpanId)":"([0-9a-f]+)"`).ReplaceAllFunc(b, func(m []byte) []byte {
		name, id, _ := strings.Cut(strings.Trim(string(m), `"`), `":"`)
		raw, _ := hex.DecodeString(id)
		return []byte(`"` + name + `":"` + base64.StdEncoding.EncodeToString(raw) + `"`)
	})
	var req collector.ExportTraceServiceRequest
	if err := protojson.Unmarshal(b, &req); err != nil {
		t.Errorf("%v in %s", err, b)
	}
	return &req
}

func TestExport(t *testing.T) {
	var tries atomic.Int64
	got := make(chan *collector.ExportTraceServiceRequest, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Api-Key") != "a b" {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		if tries.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		got <- received(t, r)
	}))
	defer srv.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL+"/")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b")
	t.Setenv("OTEL_SERVICE_NAME", "hive")
	tr, err := Open(t.Context(), "1.2.3", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, span := tr.Start(WithTraceparent(t.Context(), parent), "call", trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("s", "x"), attribute.Int("n", 1<<40), attribute.Bool("b", true), attribute.Float64("f", 0.5), attribute.StringSlice("l", []string{"a", "b"})))
	span.AddEvent("happened")
	span.SetStatus(codes.Error, "no")
	if p := Traceparent(ctx); p[:36] != parent[:36] || p == parent {
		t.Errorf("traceparent %s", p)
	}
	span.End()
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	rs := (<-got).ResourceSpans[0]
	if !strings.Contains(rs.Resource.String(), "hive") || !strings.Contains(rs.Resource.String(), "1.2.3") {
		t.Errorf("resource %v", rs.Resource)
	}
	s := rs.ScopeSpans[0].Spans[0]
	if s.Name != "call" || s.Kind.Number() != 2 || hex.EncodeToString(s.TraceId) != parent[3:35] || hex.EncodeToString(s.ParentSpanId) != parent[36:52] ||
		s.EndTimeUnixNano < s.StartTimeUnixNano || s.StartTimeUnixNano == 0 || s.Status.Message != "no" || s.Status.Code.Number() != 2 || s.Events[0].Name != "happened" {
		t.Errorf("span %v", s)
	}
	if a := s.Attributes; a[0].Value.GetStringValue() != "x" || a[1].Value.GetIntValue() != 1<<40 || !a[2].Value.GetBoolValue() ||
		a[3].Value.GetDoubleValue() != 0.5 || a[4].Value.GetArrayValue().Values[1].GetStringValue() != "b" {
		t.Errorf("attributes %v", a)
	}
}

// A collector that refuses is heard of: nobody else would say why there are no traces.
func TestExportFailureIsLogged(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer srv.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
	var out bytes.Buffer
	tr, err := Open(t.Context(), "1", slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	_, span := tr.Start(t.Context(), "call")
	span.End()
	_ = tr.Close() // it is the same failure
	if !strings.Contains(out.String(), "spans were not exported") || !strings.Contains(out.String(), "403") {
		t.Errorf("logged %q", &out)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317", "not an http or https URL"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "4318"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
			t.Setenv(tt.name, tt.value)
			if _, err := Open(t.Context(), "", nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestNothingIsExportedUnasked(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	tr, err := Open(t.Context(), "", nil)
	if err != nil || tr.provider != nil {
		t.Fatal(err)
	}
	ctx, span := tr.Start(WithTraceparent(t.Context(), parent), "x")
	if span.IsRecording() || Traceparent(ctx) != parent {
		t.Errorf("%s", Traceparent(ctx))
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}
