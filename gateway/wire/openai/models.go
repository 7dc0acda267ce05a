package openai

import (
	"encoding/json"
	"time"

	"github.com/skep-dev/skep/gateway/wire"
)

type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Owner   string `json:"owned_by"`
}

func modelOf(m wire.ModelInfo) model {
	x := model{ID: m.ID, Object: "model", Owner: m.Owner}
	if m.Created.After(time.Unix(0, 0)) {
		x.Created = m.Created.Unix()
	}
	if x.Owner == "" {
		x.Owner = "system"
	}
	return x
}

// EncodeModels makes a list of models.
func EncodeModels(list []wire.ModelInfo) []byte {
	out := struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{"list", make([]model, 0, len(list))}
	for _, m := range list {
		out.Data = append(out.Data, modelOf(m))
	}
	b, _ := json.Marshal(out)
	return b
}

// EncodeModel makes one model.
func EncodeModel(m wire.ModelInfo) []byte {
	b, _ := json.Marshal(modelOf(m))
	return b
}
