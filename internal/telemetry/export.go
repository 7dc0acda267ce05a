package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// exporter sends spans by OTLP/HTTP in its JSON encoding (OpenTelemetry protocol specification 1.9, "JSON Protobuf Encoding"). The
// library's exporters link gRPC and protocol buffers, which is more than everything else that a server holds in memory.
type exporter struct {
	url    string
	header http.Header
	client *http.Client
	log    *slog.Logger
}

// newExporter reads the variables of the specification's "OTLP Exporter Configuration".
func newExporter(log *slog.Logger) (*exporter, error) {
	endpoint := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if endpoint == "" {
		endpoint = strings.TrimSuffix(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "/") + "/v1/traces"
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT is not an http or https URL")
	}
	if p := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); p == "grpc" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is grpc, which is not spoken here: use http/json and the collector's port for HTTP, 4318 by default")
	}
	e := &exporter{url: endpoint, header: http.Header{}, client: &http.Client{Timeout: 10 * time.Second}, log: log}
	if ms, err := strconv.Atoi(first("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")); err == nil && ms > 0 {
		e.client.Timeout = time.Duration(ms) * time.Millisecond
	}
	for pair := range strings.SplitSeq(first("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"), ",") {
		name, value, found := strings.Cut(pair, "=")
		if value, err = url.PathUnescape(strings.TrimSpace(value)); found && err == nil {
			e.header.Set(strings.TrimSpace(name), value)
		}
	}
	return e, nil
}

func first(names ...string) string {
	for _, n := range names {
		if v := os.Getenv(n); v != "" {
			return v
		}
	}
	return ""
}

// ExportSpans sends one batch, and sends it again while the collector says that it makes sense, until ctx ends. It tells of a
// failure itself, for the library would tell package log.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.export(ctx, spans)
	if err != nil {
		e.log.WarnContext(ctx, "spans were not exported", "spans", len(spans), "error", err)
	}
	return err
}

func (e *exporter) export(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	var body bytes.Buffer
	zip := gzip.NewWriter(&body)
	if err := json.NewEncoder(zip).Encode(requestOf(spans)); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	for pause := 500 * time.Millisecond; ; pause *= 2 {
		again, err := e.post(ctx, body.Bytes())
		if !again || pause > 30*time.Second {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

func (e *exporter) Shutdown(context.Context) error { return nil }

func (e *exporter) post(ctx context.Context, body []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header = e.header.Clone()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", "gzip")
	res, err := e.client.Do(req)
	if err != nil {
		return ctx.Err() == nil, fmt.Errorf("export of spans: %w", err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
	switch res.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return false, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	return again, fmt.Errorf("export of spans: the collector answered %s", res.Status)
}

// The messages of opentelemetry/proto/trace/v1 in JSON: names in lowerCamelCase, ids in hex, 64-bit numbers as strings.
type (
	exportRequest struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resourceJSON `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
		SchemaURL  string       `json:"schemaUrl,omitempty"`
	}
	resourceJSON struct {
		Attributes []keyValue `json:"attributes"`
	}
	scopeSpans struct {
		Scope scopeJSON  `json:"scope"`
		Spans []spanJSON `json:"spans"`
	}
	scopeJSON struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	}
	spanJSON struct {
		TraceID    string      `json:"traceId"`
		SpanID     string      `json:"spanId"`
		TraceState string      `json:"traceState,omitempty"`
		Parent     string      `json:"parentSpanId,omitempty"`
		Flags      uint32      `json:"flags,omitempty"`
		Name       string      `json:"name"`
		Kind       int         `json:"kind"`
		Start      string      `json:"startTimeUnixNano"`
		End        string      `json:"endTimeUnixNano"`
		Attributes []keyValue  `json:"attributes,omitempty"`
		Events     []eventJSON `json:"events,omitempty"`
		Links      []linkJSON  `json:"links,omitempty"`
		Status     statusJSON  `json:"status"`
	}
	eventJSON struct {
		Time       string     `json:"timeUnixNano"`
		Name       string     `json:"name"`
		Attributes []keyValue `json:"attributes,omitempty"`
	}
	linkJSON struct {
		TraceID    string     `json:"traceId"`
		SpanID     string     `json:"spanId"`
		TraceState string     `json:"traceState,omitempty"`
		Attributes []keyValue `json:"attributes,omitempty"`
	}
	statusJSON struct {
		Message string `json:"message,omitempty"`
		Code    int    `json:"code,omitempty"`
	}
	keyValue struct {
		Key   string   `json:"key"`
		Value anyValue `json:"value"`
	}
	anyValue struct {
		String *string     `json:"stringValue,omitempty"`
		Bool   *bool       `json:"boolValue,omitempty"`
		Int    *string     `json:"intValue,omitempty"`
		Double *float64    `json:"doubleValue,omitempty"`
		Array  *arrayValue `json:"arrayValue,omitempty"`
	}
	arrayValue struct {
		Values []anyValue `json:"values"`
	}
)

// requestOf puts spans, which are all of one provider, into one request.
func requestOf(spans []sdktrace.ReadOnlySpan) exportRequest {
	if len(spans) == 0 {
		return exportRequest{}
	}
	res := spans[0].Resource()
	rs := resourceSpans{Resource: resourceJSON{attributesOf(res.Attributes())}, SchemaURL: res.SchemaURL()}
	byScope := map[scopeJSON]int{}
	for _, s := range spans {
		scope := scopeJSON{s.InstrumentationScope().Name, s.InstrumentationScope().Version}
		i, found := byScope[scope]
		if !found {
			i = len(rs.ScopeSpans)
			byScope[scope] = i
			rs.ScopeSpans = append(rs.ScopeSpans, scopeSpans{Scope: scope})
		}
		rs.ScopeSpans[i].Spans = append(rs.ScopeSpans[i].Spans, spanOf(s))
	}
	return exportRequest{ResourceSpans: []resourceSpans{rs}}
}

func spanOf(s sdktrace.ReadOnlySpan) spanJSON {
	sc := s.SpanContext()
	out := spanJSON{
		TraceID: sc.TraceID().String(), SpanID: sc.SpanID().String(), TraceState: sc.TraceState().String(), Flags: uint32(sc.TraceFlags()),
		Name: s.Name(), Kind: int(s.SpanKind()), Start: nanos(s.StartTime()), End: nanos(s.EndTime()), Attributes: attributesOf(s.Attributes()),
	}
	if p := s.Parent(); p.SpanID().IsValid() {
		out.Parent = p.SpanID().String()
	}
	for _, e := range s.Events() {
		out.Events = append(out.Events, eventJSON{nanos(e.Time), e.Name, attributesOf(e.Attributes)})
	}
	for _, l := range s.Links() {
		to := l.SpanContext
		out.Links = append(out.Links, linkJSON{to.TraceID().String(), to.SpanID().String(), to.TraceState().String(), attributesOf(l.Attributes)})
	}
	switch st := s.Status(); st.Code {
	case codes.Ok:
		out.Status.Code = 1
	case codes.Error:
		out.Status = statusJSON{st.Description, 2}
	case codes.Unset:
	}
	return out
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func attributesOf(attrs []attribute.KeyValue) []keyValue {
	out := make([]keyValue, len(attrs))
	for i, a := range attrs {
		out[i] = keyValue{string(a.Key), valueOf(a.Value)}
	}
	return out
}

func valueOf(v attribute.Value) anyValue {
	switch v.Type() {
	case attribute.BOOL:
		b := v.AsBool()
		return anyValue{Bool: &b}
	case attribute.INT64:
		n := strconv.FormatInt(v.AsInt64(), 10)
		return anyValue{Int: &n}
	case attribute.FLOAT64:
		f := v.AsFloat64()
		return anyValue{Double: &f}
	case attribute.STRINGSLICE:
		arr := &arrayValue{}
		for _, s := range v.AsStringSlice() {
			arr.Values = append(arr.Values, anyValue{String: &s})
		}
		return anyValue{Array: arr}
	default:
		s := v.String()
		return anyValue{String: &s}
	}
}
