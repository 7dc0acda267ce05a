package api

import (
	"context"
	"fmt"

	"github.com/skep-dev/skep/agent"
)

// loggingInput is what a caller says of what is kept.
type loggingInput struct {
	Days int `json:"days,omitempty" doc:"how long; nothing is kept unless given, and what there is is deleted"`
	Size int `json:"size,omitempty" doc:"bytes of a request and of an answer, each; 32768 unless given"`
}

type putModelLoggingRequest struct {
	Body loggingInput `body:"json"`
}

func (s *Server) getModelLogging(ctx context.Context, _ empty) (agent.ModelLogging, error) {
	return s.st.ModelLogging(ctx, appOf(ctx))
}

func (s *Server) putModelLogging(ctx context.Context, q putModelLoggingRequest) (agent.ModelLogging, error) {
	now := s.o.Now().UTC()
	l := agent.ModelLogging{App: appOf(ctx), Days: q.Body.Days, Size: q.Body.Size, Changed: now}
	if err := l.Check(); err != nil {
		return l, err
	}
	l, err := s.st.PutModelLogging(ctx, l)
	if err != nil {
		return l, err
	}
	if err := s.st.DropModelLogs(ctx, l.App, now.AddDate(0, 0, -l.Days)); err != nil {
		return l, err
	}
	return l, s.audit(ctx, "model.logging.put", "", fmt.Sprintf("%d days, %d bytes", l.Days, l.Keep()))
}

func (s *Server) listModelLogs(ctx context.Context, q pageQuery) (list[agent.ModelLog], error) {
	all, next, err := s.st.ModelLogs(ctx, appOf(ctx), q.page())
	return listOf(all, next, err)
}

type modelLogRequest struct {
	ID string `path:"id"`
}

func (s *Server) getModelLog(ctx context.Context, q modelLogRequest) (agent.ModelLog, error) {
	return s.st.ModelLog(ctx, appOf(ctx), q.ID)
}
