package api

import (
	"context"
	"fmt"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

// newApp is what a caller says of an app to make.
type newApp struct {
	Name   agent.App   `json:"name"`
	Weight int         `json:"weight,omitempty" doc:"share of the processors beside other apps, from 1 to 1000; 1 unless given"`
	Quota  agent.Quota `json:"quota,omitzero"`
}

type createAppRequest struct {
	Once store.Once `once:"-"`
	Body newApp     `body:"json"`
}

func (s *Server) createApp(ctx context.Context, q createAppRequest) (made[agent.AppInfo], error) {
	a, replayed, err := s.rt.CreateApp(ctx, agent.AppInfo{Name: q.Body.Name, Weight: q.Body.Weight, Quota: q.Body.Quota}, q.Once)
	if err == nil && !replayed {
		err = s.auditApp(ctx, "app.create", a)
	}
	return made[agent.AppInfo]{a, replayed}, err
}

// listApps lists the apps that the token is good for.
func (s *Server) listApps(ctx context.Context, q pageQuery) (list[agent.AppInfo], error) {
	if bound := requestOf(ctx).token.App; bound != "" {
		a, err := s.st.App(ctx, bound)
		return list[agent.AppInfo]{Items: []agent.AppInfo{a}}, err
	}
	return listOf(s.st.Apps(ctx, q.page()))
}

type appRequest struct {
	Name agent.App `path:"name"`
}

func (s *Server) getApp(ctx context.Context, q appRequest) (agent.AppInfo, error) {
	if bound := requestOf(ctx).token.App; bound != "" && bound != q.Name {
		return agent.AppInfo{}, agent.Errorf(agent.Denied, "this token is for app %q alone, not for %.80q", bound, q.Name)
	}
	return s.st.App(ctx, q.Name)
}

type updateAppRequest struct {
	Name agent.App        `path:"name"`
	Body runtime.AppPatch `body:"json"`
}

func (s *Server) updateApp(ctx context.Context, q updateAppRequest) (agent.AppInfo, error) {
	a, err := s.rt.UpdateApp(ctx, q.Name, q.Body)
	if err == nil {
		err = s.auditApp(ctx, "app.update", a)
	}
	return a, err
}

func (s *Server) deleteApp(ctx context.Context, q appRequest) (nothing, error) {
	if err := s.rt.DeleteApp(ctx, q.Name); err != nil {
		return nothing{}, err
	}
	if s.o.OAuth != nil {
		s.o.OAuth.ForgetApp(q.Name)
	}
	return nothing{}, s.auditOf(ctx, agent.DefaultApp, "app.delete", string(q.Name), "")
}

// auditApp writes to the audit logs of the app and of the default app, which has the changes of all.
func (s *Server) auditApp(ctx context.Context, action string, a agent.AppInfo) error {
	detail := fmt.Sprintf("weight %d", a.Weight)
	if a.Outbound != "" {
		detail += ", outbound " + a.Outbound
	}
	if w := a.Quota.Words(); len(w) > 0 {
		detail += ", " + strings.Join(w, ", ")
	}
	err := s.auditOf(ctx, a.Name, action, string(a.Name), detail)
	if err == nil && a.Name != agent.DefaultApp {
		err = s.auditOf(ctx, agent.DefaultApp, action, string(a.Name), detail)
	}
	return err
}
