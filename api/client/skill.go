package client

import (
	"context"
	"io"
	"net/http"

	"github.com/skep-dev/skep/agent"
)

// PutSkill stores a skill, which is a zip archive of its folder, in place of one of the same name. changed is false when it was there
// already as it is.
func (c *Client) PutSkill(ctx context.Context, zip []byte) (sk agent.Skill, changed bool, err error) {
	res, err := c.send(ctx, http.MethodPost, path("skills"), header{"Content-Type": "application/zip"}, zip)
	if err != nil {
		return sk, false, err
	}
	return sk, res.StatusCode == http.StatusCreated, c.decode(ctx, res, &sk)
}

// Skills lists skills, in the order of their names.
func (c *Client) Skills(ctx context.Context, p agent.Page) (List[agent.Skill], error) {
	return get[List[agent.Skill]](ctx, c, path("skills")+pageQuery(p).encode())
}

// Skill returns the skill of exactly that name.
func (c *Client) Skill(ctx context.Context, name string) (agent.Skill, error) {
	return get[agent.Skill](ctx, c, path("skills", name))
}

// SkillFile returns a file of a skill and its media type.
func (c *Client) SkillFile(ctx context.Context, name, file string) (body []byte, mediaType string, err error) {
	res, err := c.send(ctx, http.MethodGet, path("skills", name, "files", file), nil, nil)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	if body, err = io.ReadAll(res.Body); err != nil {
		return nil, "", c.unreachable(ctx, err)
	}
	return body, res.Header.Get("Content-Type"), nil
}

// DeleteSkill deletes the skill of exactly that name.
func (c *Client) DeleteSkill(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, path("skills", name), nil, nil, nil)
}
