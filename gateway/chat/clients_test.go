package chat

import (
	"testing"

	"github.com/skep-dev/skep/gateway/wire/openai/clienttest"
)

func TestRealClientsReadWhatIsWritten(t *testing.T) { clienttest.Run(t, Codec, "chat") }
