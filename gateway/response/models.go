package response

import (
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
)

var _ wire.Lister = codec{}

func (codec) EncodeModels(m []wire.ModelInfo) []byte { return openai.EncodeModels(m) }

func (codec) EncodeModel(m wire.ModelInfo) []byte { return openai.EncodeModel(m) }
