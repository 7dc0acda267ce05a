package api

import (
	"context"
	"fmt"
	"mime"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

func quoted(s string) string { return fmt.Sprintf("%.80q", s) }

type putPluginRequest struct {
	Name     string     `query:"name" doc:"name of the plugin"`
	Version  string     `query:"version" doc:"version of the plugin"`
	Filename string     `query:"filename" doc:"name of the uploaded file, whose extension says what it is"`
	Check    bool       `query:"check" doc:"prepare the code without storing it"`
	Type     string     `header:"Content-Type" doc:"application/wasm, text/javascript, application/typescript, application/zip or multipart/form-data"`
	Accept   string     `header:"Accept" doc:"application/x-ndjson for lines that tell the progress, and the result in the last"`
	Once     store.Once `once:"-"`
	Body     []byte     `body:"raw"`
}

// checkedPlugin is what preparing code without storing it found out.
type checkedPlugin struct {
	Exports []string `json:"exports" doc:"functions a caller may name"`
	Fetch   bool     `json:"fetch" doc:"whether it has a fetch handler"`
}

// putPlugin answers with an agent.Plugin, with a checkedPlugin, or with a stream of uploadLines.
func (s *Server) putPlugin(ctx context.Context, q putPluginRequest) (any, error) {
	form, err := negotiate(q.Accept, typeJSON, typeNDJSON)
	if err != nil {
		return nil, err
	}
	up := runtime.Upload{Name: q.Name, Version: q.Version, Filename: q.Filename, Type: q.Type, Body: q.Body}
	if len(up.Body) == 0 {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "the body is empty", Hint: "send the plugin's file as the body"}
	}
	if up, err = joinForm(up); err != nil {
		return nil, err
	}
	do := func(ctx context.Context, progress func(host.Progress)) (any, error) {
		if q.Check {
			p, err := s.rt.Check(ctx, appOf(ctx), up)
			return withStatus{200, checkedPlugin{append([]string{}, p.Exports...), p.Fetch}}, err
		}
		p, replayed, err := s.rt.PutPlugin(ctx, appOf(ctx), up, q.Once, progress)
		if err == nil && !replayed {
			err = s.audit(ctx, "plugin.push", p.Name+"@"+p.Version, pushDetail(p))
		}
		return made[agent.Plugin]{p, replayed}, err
	}
	if form == typeNDJSON {
		return s.progress(ctx, do), nil
	}
	return do(ctx, func(host.Progress) {})
}

// pushDetail says what was pushed, and what it asks for.
func pushDetail(p agent.Plugin) string {
	detail := string(p.Digest)
	if p.Asks != nil && !p.Asks.Empty() {
		detail += ". asks to: " + strings.Join(p.Asks.Words(), "; ")
	}
	return detail
}

func (s *Server) listPlugins(ctx context.Context, q pageQuery) (list[agent.Plugin], error) {
	return listOf(s.st.Plugins(ctx, appOf(ctx), q.page()))
}

type pluginRequest struct {
	Ref string `path:"ref" doc:"name, name@version or digest"`
}

func (s *Server) getPlugin(ctx context.Context, q pluginRequest) (agent.Plugin, error) {
	return s.st.Plugin(ctx, appOf(ctx), q.Ref)
}

func (s *Server) pluginContent(ctx context.Context, q pluginRequest) (raw, error) {
	name, b, err := s.rt.Content(ctx, appOf(ctx), q.Ref)
	if err != nil {
		return raw{}, err
	}
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": name})
	return raw{contentType: agent.TypeBytes, header: [][2]string{{"Content-Disposition", disposition}}, body: b}, nil
}
