package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// accessText tells what an agent did with its grants, or what was changed. It is empty when the data cannot be read.
func accessText(e agent.Event) string {
	switch e.Kind {
	case agent.EventRefused:
		var r agent.Refusal
		if json.Unmarshal(e.Data, &r) != nil {
			return ""
		}
		text := fmt.Sprintf("%s %s: %s", r.Grant, r.What, r.Reason)
		if r.More > 0 {
			text += fmt.Sprintf(" (and %d more)", r.More)
		}
		return text
	case agent.EventSecretUsed:
		var u agent.SecretUse
		if json.Unmarshal(e.Data, &u) != nil {
			return ""
		}
		where := "in " + u.Place + " of"
		if u.Place == agent.PlaceExchange {
			where = "exchanged for a token by"
		}
		return fmt.Sprintf("%s (version %d) %s %s %s%s, by agent %s", u.Secret, u.Version, where, u.Method, u.Host, u.Path, u.Agent)
	case agent.EventHTTP:
		var u agent.HTTPUse
		if json.Unmarshal(e.Data, &u) != nil {
			return ""
		}
		text := fmt.Sprintf("%s %s%s", u.Method, u.Host, u.Path)
		if u.Status != 0 {
			text += fmt.Sprintf(": %d", u.Status)
		}
		if u.Error != "" {
			text += ": " + u.Error
		}
		return text + fmt.Sprintf(", %s sent, %s received, %s", size(u.Sent), size(u.Received), took(u.Duration))
	case agent.EventChanged:
		var c agent.Change
		if json.Unmarshal(e.Data, &c) != nil {
			return ""
		}
		text := strings.TrimSpace(c.Action + " " + c.Name)
		if c.Detail != "" {
			text += ": " + c.Detail
		}
		if c.Agent != "" {
			return text + fmt.Sprintf(" (agent %s, run %s)", c.Agent, or(string(c.Run), "none"))
		}
		return text + fmt.Sprintf(" (token %s)", or(string(c.Token), "none"))
	}
	return ""
}
