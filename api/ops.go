package api

import (
	"context"

	"github.com/skep-dev/skep/agent"
)

type noRequest struct{}

// statusReply answers a probe.
type statusReply struct {
	Status string `json:"status"`
}

func (s *Server) healthz(context.Context, noRequest) (statusReply, error) {
	return statusReply{"ok"}, nil
}

// readyz is Unavailable once the server was told to stop, and when the store does not answer.
func (s *Server) readyz(ctx context.Context, _ noRequest) (statusReply, error) {
	if s.stopped.Load() {
		return statusReply{}, agent.Errorf(agent.Unavailable, "the server is stopping")
	}
	if _, _, err := s.st.Tokens(ctx, "", agent.Page{Limit: 1}); err != nil {
		return statusReply{}, agent.Wrap(agent.Unavailable, err, "the store does not answer")
	}
	return statusReply{"ready"}, nil
}

func (s *Server) openapi(context.Context, noRequest) (raw, error) {
	return raw{contentType: typeJSON, header: [][2]string{{"Cache-Control", "no-cache"}}, body: s.doc}, nil
}

func (s *Server) prometheus(context.Context, noRequest) (raw, error) {
	body, err := s.metrics.text()
	return raw{contentType: typeMetrics, body: body}, err
}
