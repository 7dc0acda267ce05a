package abi

// A fetch handler whose response has a stream for its body sends it by these calls, while the cell runs. Where nobody takes
// pieces they are refused, and the body goes out as a whole when it has ended.
const (
	CallReply      = "reply"       // HTTPReply -> empty: the head, once
	CallReplyWrite = "reply.write" // bytes of the body -> empty, when they are taken
)

// HTTPReply is what such a response begins with.
type HTTPReply struct {
	Status int         `json:"status"`
	Header [][2]string `json:"header,omitempty"`
}
