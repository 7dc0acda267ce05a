package api

import (
	"context"
	"io"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/script"
	"github.com/skep-dev/skep/store"
)

// recordProvider streams the calls to a provider from now on, as lines of a script: each tells the answer that the provider gave, without its keys. It ends
// when the provider is no more: another of its name may be in an app of somebody else.
func (s *Server) recordProvider(ctx context.Context, q modelRequest) (*stream, error) {
	if s.o.Models == nil {
		return nil, errNoModels
	}
	p, err := providerSpace.read(ctx, s, q.Name)
	if err != nil {
		return nil, err
	}
	if err := s.audit(ctx, "model.provider.record", q.Name, ""); err != nil {
		return nil, err
	}
	app := appOf(ctx)
	tap := s.o.Models.Tap(app, q.Name)
	out := &stream{contentType: typeNDJSON, first: []byte("\n"), beat: []byte("\n"), close: tap.Close}
	out.next = func(ctx context.Context) ([]byte, error) {
		for {
			e, err := tap.Next(ctx)
			if err != nil {
				return nil, err
			}
			var now agent.Provider
			_, err = s.st.Doc(ctx, store.Providers, app, q.Name, &now)
			if agent.KindOf(err) == agent.NotFound || err == nil && !now.Created.Equal(p.Created) {
				return nil, io.EOF
			}
			if err != nil {
				return nil, err
			}
			if line := recordLine(s.o.Models, e); line != nil {
				return line, nil
			}
		}
	}
	return out, nil
}

// recordLine is a call as a line of a script, or nil for one that cannot be told again.
func recordLine(g *gateway.Gateway, e gateway.Exchange) []byte {
	if e.Truncated {
		return nil
	}
	b, err := script.Record(script.Recorded{
		Protocol: e.Protocol, Op: e.Op, Path: e.Path, Request: e.Request, Status: e.Status, Header: e.Header, Body: e.Body,
	}, g.Codecs())
	if err != nil {
		return nil
	}
	return append(b, '\n')
}
