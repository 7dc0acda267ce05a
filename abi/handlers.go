package abi

import "strings"

// A module cannot have an export with a colon in every language, and languages have their own ways to write a name. So what the host
// calls of an instance by itself has three names in a module, of which the first one that is there is meant:
//
//	host            input                     exports of a module
//	onStart         none                      onStart, on_start, OnStart
//	onUpgrade       digest of the code before onUpgrade, on_upgrade, OnUpgrade
//	onAlarm         the alarm's payload       onAlarm, on_alarm, OnAlarm
//	skep:connect    SocketEvent               onConnect, on_connect, OnConnect
//	skep:message    SocketEvent               onSocketMessage, on_socket_message, OnSocketMessage
//	skep:close      SocketEvent               onClose, on_close, OnClose
var handlers = []string{"onStart", "onUpgrade", "onAlarm", "onConnect", "onSocketMessage", "onClose"}

// HandlerNames returns the exports by which a module may handle what the host calls, the first of which that is there is meant. The
// methods of alarms, which are not in the table, are found in the same way. It is nil for "".
func HandlerNames(handler string) []string {
	switch handler {
	case "":
		return nil
	case FunctionConnect:
		handler = "onConnect"
	case FunctionMessage:
		handler = "onSocketMessage"
	case FunctionClose:
		handler = "onClose"
	}
	return []string{handler, snake(handler), strings.ToUpper(handler[:1]) + handler[1:]}
}

// HandlerOf names the handler, as in onConnect, that an export of a module is, or returns "". A client may call none of them, however
// it is spelt: what they are given would be believed.
func HandlerOf(export string) string {
	for _, h := range handlers {
		for _, name := range HandlerNames(h) {
			if name == export {
				return h
			}
		}
	}
	return ""
}

func snake(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c >= 'A' && c <= 'Z' {
			b.WriteByte('_')
			b.WriteByte(c + 'a' - 'A')
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
