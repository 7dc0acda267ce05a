package api

import (
	"context"
	"net/http"
	"path"
	"reflect"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools/skill"
)

func (s *Server) skills() *skill.Store { return skill.NewStore(s.st) }

type putSkillRequest struct {
	Body []byte `body:"raw"`
}

// putSkill answers with 201 when the skill is new or another than before, else with 200.
func (s *Server) putSkill(ctx context.Context, q putSkillRequest) (any, error) {
	if len(q.Body) == 0 {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "the body is empty", Hint: "send a zip archive of the skill's folder as the body"}
	}
	b, err := skill.FromZip(q.Body)
	if err != nil {
		return nil, err
	}
	sk, changed, err := s.skills().Put(ctx, appOf(ctx), b)
	if err != nil || !changed {
		return withStatus{http.StatusOK, sk}, err
	}
	return sk, s.audit(ctx, "skill.put", sk.Name, string(sk.Digest))
}

func (s *Server) listSkills(ctx context.Context, q pageQuery) (list[agent.Skill], error) {
	return listOf(s.skills().List(ctx, appOf(ctx), q.page()))
}

type skillRequest struct {
	Name string `path:"name" doc:"the exact name"`
}

func (s *Server) getSkill(ctx context.Context, q skillRequest) (agent.Skill, error) {
	return s.skills().Get(ctx, appOf(ctx), q.Name)
}

type skillFileRequest struct {
	skillRequest
	Path string `path:"path" doc:"slashes may stand as they are"`
}

func (s *Server) getSkillFile(ctx context.Context, q skillFileRequest) (raw, error) {
	_, f, body, err := s.skills().Load(ctx, appOf(ctx), q.Name, q.Path)
	if err != nil {
		return raw{}, err
	}
	return raw{contentType: f.Type, body: body, header: [][2]string{
		{"Content-Disposition", attachment(path.Base(f.Path))}, {"ETag", etagOf(f.Digest)}, {"X-Content-Type-Options", "nosniff"},
	}}, nil
}

func (s *Server) deleteSkill(ctx context.Context, q skillRequest) (nothing, error) {
	if err := s.skills().Delete(ctx, appOf(ctx), q.Name); err != nil {
		return nothing{}, err
	}
	return nothing{}, s.audit(ctx, "skill.delete", q.Name, "")
}

func skillResults() map[int]reflect.Type {
	return map[int]reflect.Type{http.StatusCreated: reflect.TypeFor[agent.Skill](), http.StatusOK: reflect.TypeFor[agent.Skill]()}
}
