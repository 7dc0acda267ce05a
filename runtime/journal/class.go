package journal

import (
	"encoding/json"
	"strings"

	"github.com/skep-dev/skep/abi"
)

// Class says what making a call again would mean.
type Class uint8

const (
	UnknownClass Class = iota
	Pure               // it has no answer that could differ
	Read               // it changes nothing: made again when its answer is not known
	Own                // it reads the instance itself
	Inside             // it changes only the instance, and commits with it
	Wait               // it waits for a time, an event, a run, or the answer of an instance
	Idempotent         // it may be made again
	Once               // it must not be made twice
	Judging            // nobody has judged it yet; never stored
	classes
)

var classNames = [classes]string{"unknown", "pure", "read", "own", "inside", "wait", "idempotent", "once", "judging"}

func (c Class) String() string {
	if c >= classes {
		return classNames[0]
	}
	return classNames[c]
}

// Leaves reports whether a call reaches what is outside of the instance.
func (c Class) Leaves() bool { return c == Read || c == Idempotent || c == Once }

var classOf = map[string]Class{
	abi.CallLog: Pure, abi.CallSelf: Pure, abi.CallEmit: Pure, abi.CallStepBegin: Pure, abi.CallStepEnd: Pure,
	abi.CallHTTPRead: Read, abi.CallHTTPHead: Read, abi.CallHTTPWrite: Read, // of an exchange that was opened by a call of its own class
	abi.CallStateGet: Read, abi.CallStateList: Read, abi.CallHTTPClose: Read, abi.CallTurnLeave: Read, abi.CallTurnEnter: Read,
	abi.CallStorageGet: Own, abi.CallStorageList: Own, abi.CallAlarmList: Own, abi.CallSocketList: Own, abi.CallSharedGet: Own,
	abi.CallStorageSet: Inside, abi.CallStorageDelete: Inside, abi.CallStorageBatch: Inside, abi.CallStorageSQL: Inside,
	abi.CallSharedSet: Inside, abi.CallAlarmSet: Inside, abi.CallAlarmCancel: Inside, abi.CallStart: Inside,
	abi.CallSocketSend: Inside, abi.CallSocketClose: Inside, abi.CallSocketAttach: Inside, abi.CallChildDelete: Inside,
	abi.CallSleep: Wait, abi.CallWait: Wait, abi.CallResult: Wait,
	abi.CallTool: Judging, abi.CallToolChange: Judging,
	abi.CallToolList: Read, abi.CallToolSearch: Read, abi.CallToolDescribe: Read,
	abi.CallModel: Read, abi.CallModelOpen: Read, abi.CallModelRead: Read, abi.CallModelClose: Read, abi.CallModelList: Read,
	abi.CallFileRead: Read, abi.CallFileList: Read, abi.CallFilePut: Idempotent, abi.CallSkillList: Read, abi.CallSkillLoad: Read,
	abi.CallInstructions: Read,

	// The driver of a sandbox does once what has a name, and each of these names what it begins by the run and the call.
	abi.CallSandboxOpen: Idempotent, abi.CallSandboxExec: Idempotent, abi.CallSandboxPrompt: Idempotent, abi.CallSandboxAnswer: Idempotent,
	abi.CallSandboxInterrupt: Idempotent, abi.CallSandboxSignal: Idempotent,
	// These come to the same when they are made again.
	abi.CallSandboxWrite: Idempotent, abi.CallSandboxDelete: Idempotent, abi.CallSandboxAttach: Idempotent, abi.CallSandboxRepo: Idempotent,
	abi.CallSandboxDiff: Idempotent, abi.CallSandboxSave: Idempotent, abi.CallSandboxRestore: Idempotent, abi.CallSandboxPreview: Idempotent,
	abi.CallSandboxRead: Read, abi.CallSandboxList: Read, abi.CallSandboxProcesses: Read, abi.CallSandboxNext: Read, abi.CallSandboxAsk: Read, abi.CallSandboxWithdraw: Read,
}

// ClassOf returns the class of a call. What is not known is Once.
func ClassOf(name string, in []byte) Class {
	if c, ok := classOf[name]; ok {
		return c
	}
	switch name {
	case abi.CallHTTPOpen:
		if head, _, err := abi.SplitHTTPHead(in); err == nil {
			return classOfRequest(head)
		}
	case abi.CallHTTP:
		return classOfRequest(in)
	case abi.CallAgent:
		var a abi.AgentCall
		switch err := json.Unmarshal(in, &a); {
		case err != nil || a.Key == "":
		case a.Send:
			return Inside
		default:
			return Wait
		}
	case abi.CallStateSet, abi.CallStateDelete:
		// Without a version it leads to the same however often it is made.
		var e abi.StateEdit
		if json.Unmarshal(in, &e) == nil && e.If == nil {
			return Idempotent
		}
	}
	return Once
}

// classOfRequest grades an outbound request by its method (RFC 9110, section 9.2) and its Idempotency-Key.
func classOfRequest(head []byte) Class {
	var req struct {
		Method string
		Header [][2]string
	}
	if json.Unmarshal(head, &req) != nil {
		return Once
	}
	switch strings.ToUpper(req.Method) {
	case "", "GET", "HEAD", "OPTIONS":
		return Read
	case "PUT", "DELETE":
		return Idempotent
	}
	for _, h := range req.Header {
		if strings.EqualFold(h[0], "Idempotency-Key") && h[1] != "" {
			return Idempotent
		}
	}
	return Once
}
