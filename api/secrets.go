package api

import (
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault"
)

// secretInput is a value that a caller sets. Nothing returns it. It takes no Idempotency-Key: what is remembered of a request is a
// digest of its body, from which a short value could be guessed.
type secretInput struct {
	Value       json.RawMessage  `json:"value" doc:"text; of a typed secret an object, whose members its kind says"`
	Kind        agent.SecretKind `json:"kind,omitempty" doc:"what it is already, else value, unless given"`
	Description *string          `json:"description,omitempty" doc:"as it is, unless given"`
	Bindings    *[]agent.Binding `json:"bindings,omitempty" doc:"where it may go: TARGET, then header:NAME, query:NAME or body:NAME; as it is, unless given"`
}

// secretDetail is a secret with its versions.
type secretDetail struct {
	agent.Secret
	Versions []agent.SecretVersion `json:"versions" doc:"those that are kept, oldest first"`
}

func detailOf(i vault.Info, err error) (secretDetail, error) { return secretDetail(i), err }

// secrets returns the vault.
func (s *Server) secrets() (*vault.Vault, error) {
	if s.o.Vault == nil {
		return nil, &agent.Error{Kind: agent.Unavailable, Msg: "this server keeps no secrets"}
	}
	return s.o.Vault, nil
}

// byOf tells the vault whose request this is.
func byOf(ctx context.Context) vault.By {
	r := requestOf(ctx)
	return vault.By{Token: r.token.ID, Request: r.id}
}

type secretRequest struct {
	Name string `path:"name"`
}

type putSecretRequest struct {
	Name string      `path:"name"`
	Body secretInput `body:"json"`
}

func (s *Server) putSecret(ctx context.Context, q putSecretRequest) (secretDetail, error) {
	v, err := s.secrets()
	if err != nil {
		return secretDetail{}, err
	}
	defer clear(q.Body.Value)
	kind := q.Body.Kind
	if kind == agent.UnknownSecret {
		kind = agent.SecretValue
		was, err := v.Get(ctx, appOf(ctx), q.Name)
		if err == nil {
			kind = was.Kind
		} else if agent.KindOf(err) != agent.NotFound {
			return secretDetail{}, err
		}
	}
	value := []byte(q.Body.Value) // the object of a typed secret, which the vault decodes
	if kind == agent.SecretValue {
		var text string
		if json.Unmarshal(q.Body.Value, &text) != nil { // the error would quote the value
			return secretDetail{}, &agent.Error{
				Kind: agent.Invalid, Msg: `field "value" must be a string`, Hint: "name the kind of a typed secret: basic, aws, github_app or oauth",
			}
		}
		value = []byte(text)
	}
	return detailOf(v.Set(ctx, byOf(ctx), appOf(ctx), q.Name, vault.Put{
		Kind: kind, Value: value, Description: q.Body.Description, Bindings: q.Body.Bindings,
	}))
}

func (s *Server) listSecrets(ctx context.Context, q pageQuery) (list[agent.Secret], error) {
	v, err := s.secrets()
	if err != nil {
		return list[agent.Secret]{}, err
	}
	return listOf(v.List(ctx, appOf(ctx), q.page()))
}

func (s *Server) getSecret(ctx context.Context, q secretRequest) (secretDetail, error) {
	v, err := s.secrets()
	if err != nil {
		return secretDetail{}, err
	}
	return detailOf(v.Get(ctx, appOf(ctx), q.Name))
}

type secretPatch vault.Patch

type updateSecretRequest struct {
	Name string      `path:"name"`
	Body secretPatch `body:"json"`
}

func (s *Server) updateSecret(ctx context.Context, q updateSecretRequest) (secretDetail, error) {
	v, err := s.secrets()
	if err != nil {
		return secretDetail{}, err
	}
	return detailOf(v.Change(ctx, byOf(ctx), appOf(ctx), q.Name, vault.Patch(q.Body)))
}

func (s *Server) deleteSecret(ctx context.Context, q secretRequest) (nothing, error) {
	v, err := s.secrets()
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, v.Delete(ctx, byOf(ctx), appOf(ctx), q.Name)
}

// rollbackTo says which version of a secret to go back to.
type rollbackTo struct {
	Version int `json:"version" doc:"one that is kept"`
}

type rollbackSecretRequest struct {
	Name string     `path:"name"`
	Body rollbackTo `body:"json"`
}

func (s *Server) rollbackSecret(ctx context.Context, q rollbackSecretRequest) (secretDetail, error) {
	v, err := s.secrets()
	if err != nil {
		return secretDetail{}, err
	}
	return detailOf(v.Rollback(ctx, byOf(ctx), appOf(ctx), q.Name, q.Body.Version))
}

// vaultKey says where a key is.
type vaultKey struct {
	Key string `json:"key" doc:"file:PATH, age:PATH, hcvault://HOST/transit/keys/NAME or aws-kms://ARN, as the server reaches it"`
}

type rewrapRequest struct {
	Body vaultKey `body:"json"`
}

func (s *Server) rewrapSecrets(ctx context.Context, q rewrapRequest) (vault.Rewrapped, error) {
	v, err := s.secrets()
	if err != nil {
		return vault.Rewrapped{}, err
	}
	return v.Rewrap(ctx, byOf(ctx), q.Body.Key)
}
