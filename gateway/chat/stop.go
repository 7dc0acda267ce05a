package chat

import "github.com/skep-dev/skep/gateway/wire"

func stopOf(reason string) wire.Stop {
	switch reason {
	case "stop", "eos", "end_turn", "eos_token":
		return wire.StopEnd
	case "stop_sequence":
		return wire.StopSequence
	case "length", "max_tokens", "model_length":
		return wire.StopLength
	case "tool_calls", "function_call", "tool_use":
		return wire.StopTool
	case "content_filter", "refusal", "safety":
		return wire.StopFilter
	}
	return wire.StopUnknown
}

// reasonOf names why a model stopped. A pause has no word here: what was said until then is the answer.
func reasonOf(s wire.Stop) string {
	switch s {
	case wire.StopLength:
		return "length"
	case wire.StopTool:
		return "tool_calls"
	case wire.StopFilter:
		return "content_filter"
	}
	return "stop"
}
