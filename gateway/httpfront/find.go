package httpfront

import (
	"net/http"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// Find returns the protocol of a path and what it asks for; NoOp for a path that is none, with the protocol in whose form that is best told. Paths of
// OpenAI are there without /v1, too: its SDKs' base URLs end in it, and others' do not.
func Find(method, path string, header http.Header) (agent.Protocol, wire.Op) {
	asks := method == http.MethodPost
	looks := method == http.MethodGet
	if below, ok := strings.CutPrefix(path, "/v1beta/models"); ok {
		named := strings.HasPrefix(below, "/")
		switch {
		case asks && named && strings.HasSuffix(below, ":countTokens"):
			return agent.GeminiProtocol, wire.Count
		case asks && named:
			return agent.GeminiProtocol, wire.Generate
		case looks && named:
			return agent.GeminiProtocol, wire.Describe
		case looks && below == "":
			return agent.GeminiProtocol, wire.List
		}
		return agent.GeminiProtocol, wire.NoOp
	}
	if strings.HasPrefix(path, "/v1/messages") {
		switch {
		case asks && path == "/v1/messages":
			return agent.MessageProtocol, wire.Generate
		case asks && path == "/v1/messages/count_tokens":
			return agent.MessageProtocol, wire.Count
		}
		return agent.MessageProtocol, wire.NoOp
	}
	switch short := strings.TrimPrefix(path, "/v1"); {
	case asks && short == "/chat/completions":
		return agent.ChatProtocol, wire.Generate
	case asks && short == "/responses":
		return agent.ResponseProtocol, wire.Generate
	case asks && short == "/responses/input_tokens":
		return agent.ResponseProtocol, wire.Count
	case asks && short == "/embeddings":
		return agent.EmbedProtocol, wire.Embed
	case looks && short == "/models":
		return lister(header), wire.List
	case looks && strings.HasPrefix(short, "/models/"):
		return lister(header), wire.Describe
	}
	return lister(header), wire.NoOp
}

// lister is whose form the list of models has, whose path is of two protocols.
func lister(header http.Header) agent.Protocol {
	if header.Get("Anthropic-Version") != "" {
		return agent.MessageProtocol
	}
	return agent.ChatProtocol
}
