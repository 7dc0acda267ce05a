// Package telemetry carries what names a piece of work (its request, its run, its trace) from where it is known to where it
// is wanted: into log lines, spans and outbound requests.
package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Scope is the instrumentation scope of Skep's spans.
const Scope = "github.com/skep-dev/skep"

// Tracing makes spans and, where the environment names a collector, exports them.
type Tracing struct {
	trace.Tracer
	provider *sdktrace.TracerProvider // nil when nothing is exported
}

// Open starts tracing as the environment asks: with OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT spans go
// there by OTLP over HTTP, and the further OTEL_ variables of the OpenTelemetry specification hold. Without, spans are not
// recorded, and a trace that a caller began is passed on as it is. log hears of spans that could not be exported.
func Open(ctx context.Context, version string, log *slog.Logger) (*Tracing, error) {
	off := &Tracing{Tracer: noop.NewTracerProvider().Tracer(Scope)}
	if os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" ||
		os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return off, nil
	}
	exporter, err := newExporter(log)
	if err != nil {
		return nil, err
	}
	res, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName("skep"), semconv.ServiceVersion(version)),
		resource.WithFromEnv(), resource.WithTelemetrySDK(), resource.WithHost())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	return &Tracing{Tracer: provider.Tracer(Scope, trace.WithInstrumentationVersion(version)), provider: provider}, nil
}

// Start is trace.Tracer's. Where nothing is exported there is no new span, and the context stays as it is.
func (t *Tracing) Start(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	if t.provider == nil {
		return ctx, trace.SpanFromContext(ctx)
	}
	return t.Tracer.Start(ctx, name, o...)
}

// Close exports the spans that wait, for at most a few seconds.
func (t *Tracing) Close() error {
	if t.provider == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// None returns a tracer that records nothing.
func None() trace.Tracer { return noop.NewTracerProvider().Tracer(Scope) }

// Traceparent returns the place of ctx in its trace as W3C Trace Context writes it, or "" when it is in none.
func Traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c["traceparent"]
}

// WithTraceparent returns a context within the trace that header names, or ctx when it names none.
func WithTraceparent(ctx context.Context, header string) context.Context {
	if header == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": header})
}

type attrsKey struct{}

// With returns a context whose log lines carry attrs, beside those that ctx had.
func With(ctx context.Context, attrs ...slog.Attr) context.Context {
	old, _ := ctx.Value(attrsKey{}).([]slog.Attr)
	return context.WithValue(ctx, attrsKey{}, append(old[:len(old):len(old)], attrs...))
}

// handler adds to each line what its context carries.
type handler struct{ slog.Handler }

// Logger returns a logger that adds to each line the attributes of With and the ids of the trace. It may be asked for twice.
func Logger(l *slog.Logger) *slog.Logger {
	if _, already := l.Handler().(handler); already {
		return l
	}
	return slog.New(handler{l.Handler()})
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if attrs, ok := ctx.Value(attrsKey{}).([]slog.Attr); ok {
		r.AddAttrs(attrs...)
	}
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r.AddAttrs(slog.String("trace", sc.TraceID().String()), slog.String("span", sc.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs)}
}
func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }
