package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// modelKeyPrefix is what values of virtual keys begin with, so that one that leaked is known for what it is.
const modelKeyPrefix = "skm_"

// Bounds of a value that is given, in bytes.
const (
	minModelKey = 10
	maxModelKey = 512
)

// newModelKey is what a caller says of a virtual key to make. It takes no Idempotency-Key: what is remembered of a request is a digest of its body,
// from which a short value could be guessed.
type newModelKey struct {
	Name    string          `json:"name"`
	Agent   string          `json:"agent,omitempty" doc:"on whose behalf it calls"`
	Session agent.SessionID `json:"session,omitempty"`
	Run     agent.RunID     `json:"run,omitempty" doc:"it dies with the run"`
	User    string          `json:"user,omitempty" doc:"whom its calls are counted for; a request may not say otherwise"`
	Models  []string        `json:"models,omitempty" doc:"what it may ask for: @ROUTE or PROVIDER/MODEL, with *; all unless given"`
	Expires time.Time       `json:"expires,omitzero" doc:"never, unless given"`
	Value   string          `json:"value,omitempty" doc:"a value of at least 10 bytes that clients have already; drawn unless given"`
}

// modelKeyValue is a new virtual key with its value.
type modelKeyValue struct {
	agent.ModelKey
	Value string `json:"value" doc:"shown this once"`
}

type createModelKeyRequest struct {
	Body newModelKey `body:"json"`
}

func (s *Server) createModelKey(ctx context.Context, q createModelKeyRequest) (modelKeyValue, error) {
	b, now := q.Body, s.o.Now().UTC()
	k := agent.ModelKey{
		ID: string(agent.NewTokenID(now)), Name: b.Name, App: appOf(ctx), Agent: b.Agent, Session: b.Session, Run: b.Run, User: b.User, Models: b.Models,
		Created: now, Expires: b.Expires,
	}
	if err := k.Check(); err != nil {
		return modelKeyValue{}, err
	}
	if !k.Expires.IsZero() && !k.Expires.After(now) {
		return modelKeyValue{}, agent.Errorf(agent.Invalid, "field %q is in the past", "expires")
	}
	if err := s.checkKeyOf(ctx, &k); err != nil {
		return modelKeyValue{}, err
	}
	value := b.Value
	k.Hint = value[:min(len(value)/5, 4)] // little of what somebody may have made up
	if value == "" {
		var random [24]byte
		rand.Read(random[:])
		value = modelKeyPrefix + hex.EncodeToString(random[:])
		k.Hint = value[:len(modelKeyPrefix)+4]
	} else if err := checkKeyValue(value); err != nil {
		return modelKeyValue{}, err
	}
	if err := s.st.PutModelKey(ctx, k, sha256.Sum256([]byte(value))); err != nil {
		return modelKeyValue{}, err
	}
	return modelKeyValue{k, value}, s.audit(ctx, "model.key.create", k.Name, keyWords(k))
}

// checkKeyOf returns an error unless the agent, session and run that a key is for are there.
func (s *Server) checkKeyOf(ctx context.Context, k *agent.ModelKey) error {
	if k.Agent != "" {
		if _, err := s.st.Agent(ctx, k.App, k.Agent); err != nil {
			return err
		}
	}
	if k.Session != "" {
		if _, err := s.st.Session(ctx, k.App, k.Session); err != nil {
			return err
		}
	}
	if k.Run != "" {
		run, err := s.st.Run(ctx, k.App, k.Run)
		if err != nil {
			return err
		}
		if run.Status.Terminal() {
			return agent.Errorf(agent.Conflict, "run %s has ended, and a key of it with it", k.Run)
		}
	}
	return nil
}

func checkKeyValue(v string) error {
	if len(v) < minModelKey || len(v) > maxModelKey {
		return agent.Errorf(agent.Invalid, "field %q is not %d to %d bytes long", "value", minModelKey, maxModelKey)
	}
	for i := range len(v) {
		if v[i] < ' ' || v[i] > '~' {
			return agent.Errorf(agent.Invalid, "field %q has what no header can have", "value")
		}
	}
	if strings.TrimSpace(v) != v || strings.HasPrefix(v, tokenPrefix) {
		return agent.Errorf(agent.Invalid, "field %q begins or ends with a space, or like an access token", "value")
	}
	return nil
}

func keyWords(k agent.ModelKey) string {
	detail := k.ID
	for _, w := range []struct{ name, value string }{
		{"agent", k.Agent}, {"run", string(k.Run)}, {"user", k.User}, {"models", strings.Join(k.Models, " ")},
	} {
		if w.value != "" {
			detail += fmt.Sprintf(", %s %s", w.name, w.value)
		}
	}
	if k.Disabled {
		detail += ", disabled"
	}
	return detail
}

func (s *Server) listModelKeys(ctx context.Context, q pageQuery) (list[agent.ModelKey], error) {
	return listOf(s.st.ModelKeys(ctx, appOf(ctx), q.page()))
}

type modelKeyRequest struct {
	ID string `path:"id"`
}

func (s *Server) getModelKey(ctx context.Context, q modelKeyRequest) (agent.ModelKey, error) {
	return s.st.ModelKey(ctx, appOf(ctx), q.ID)
}

// modelKeyPatch changes the fields that are given.
type modelKeyPatch struct {
	Name     *string    `json:"name,omitempty"`
	User     *string    `json:"user,omitempty"`
	Models   *[]string  `json:"models,omitempty"`
	Disabled *bool      `json:"disabled,omitempty"`
	Expires  *time.Time `json:"expires,omitempty"`
}

type updateModelKeyRequest struct {
	ID   string        `path:"id"`
	Body modelKeyPatch `body:"json"`
}

func (s *Server) updateModelKey(ctx context.Context, q updateModelKeyRequest) (agent.ModelKey, error) {
	b := q.Body
	k, err := s.st.ChangeModelKey(ctx, appOf(ctx), q.ID, func(k *agent.ModelKey) error {
		if b.Name != nil {
			k.Name = *b.Name
		}
		if b.User != nil {
			k.User = *b.User
		}
		if b.Models != nil {
			k.Models = *b.Models
		}
		if b.Disabled != nil {
			k.Disabled = *b.Disabled
		}
		if b.Expires != nil {
			k.Expires = *b.Expires
		}
		return k.Check()
	})
	if err != nil {
		return k, err
	}
	return k, s.audit(ctx, "model.key.update", k.Name, keyWords(k))
}

func (s *Server) deleteModelKey(ctx context.Context, q modelKeyRequest) (nothing, error) {
	gone, err := s.st.DeleteModelKeys(ctx, appOf(ctx), q.ID)
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, s.audit(ctx, "model.key.delete", gone[0].Name, keyWords(gone[0]))
}
