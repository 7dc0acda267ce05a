package script

import (
	"encoding/json"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

// asked are the calls that the prelude's ask may make: they are answered at once.
var asked = map[string]bool{
	abi.CallSelf: true, abi.CallSharedGet: true, abi.CallSharedSet: true, abi.CallStepBegin: true, abi.CallStepEnd: true,
}

// called are those that its call may make, which are answered by a promise. True means that the call changes something: a cell
// does not end before it has been answered, also when the author's code does not wait for that.
var called = map[string]bool{
	abi.CallStorageGet: false, abi.CallStorageSet: true, abi.CallStorageDelete: true, abi.CallStorageList: false,
	abi.CallStorageBatch: true, abi.CallStorageSQL: true,
	abi.CallAlarmSet: true, abi.CallAlarmList: false, abi.CallAlarmCancel: true,
	abi.CallSleep: false, abi.CallWait: false, abi.CallStart: true, abi.CallResult: false,
	abi.CallSocketSend: true, abi.CallSocketClose: true, abi.CallSocketAttach: true, abi.CallSocketList: false,
	abi.CallChildDelete: true, abi.CallTurnLeave: false, abi.CallTurnEnter: false,
	abi.CallTool: true, abi.CallToolChange: true, abi.CallToolList: false, abi.CallToolSearch: false, abi.CallToolDescribe: false,
	abi.CallModel: false, abi.CallModelOpen: false, abi.CallModelRead: false, abi.CallModelClose: false, abi.CallModelList: false,
	abi.CallFileRead: false, abi.CallFilePut: true, abi.CallFileList: false, abi.CallSkillList: false, abi.CallSkillLoad: false,
	abi.CallInstructions: false,
	abi.CallSandboxOpen:  false, abi.CallSandboxExec: true, abi.CallSandboxRead: false, abi.CallSandboxWrite: true, abi.CallSandboxList: false,
	abi.CallSandboxDelete: true, abi.CallSandboxAttach: true, abi.CallSandboxRepo: true, abi.CallSandboxDiff: true, abi.CallSandboxPrompt: true,
	abi.CallSandboxNext: false, abi.CallSandboxAnswer: true, abi.CallSandboxAsk: false, abi.CallSandboxWithdraw: true, abi.CallSandboxInterrupt: true,
	abi.CallSandboxSave: true, abi.CallSandboxRestore: true, abi.CallSandboxProcesses: false, abi.CallSandboxSignal: true,
	abi.CallSandboxPreview: false,
}

// startCalled begins one of called. trace is where in the code, when it says so.
func (v *vm) startCalled(id float64, name string, body []byte, trace string) {
	if _, is := called[name]; !is {
		v.fail(agent.Errorf(agent.Internal, "the prelude made an unknown call %q", name))
		return
	}
	v.startAt(place.FindString(trace), id, name, body)
}

// askText makes one of asked. What it returns is the answer, or an ErrorBody of package abi after a "!", with which no JSON
// begins.
func (v *vm) askText(name string, body []byte) uint64 {
	if !asked[name] {
		v.fail(agent.Errorf(agent.Internal, "the prelude asked an unknown question %q", name))
		return 0
	}
	out, err := v.ask(name, body)
	if err != nil {
		out = append([]byte("!"), errorBody(err)...)
	}
	return v.newText(string(out))
}

// holds reports whether a change is under way that the code has made and does not wait for. A result waits for it: a frame
// that is sent in a function's last line is sent. Where the function failed, its changes are undone, and nothing waits.
func (v *vm) holds() bool {
	if v.failure != nil {
		return false
	}
	for _, r := range v.waiting {
		if r.changes() {
			return true
		}
	}
	for _, c := range v.calls {
		if c.changes() {
			return true
		}
	}
	return false
}

func (r *request) changes() bool {
	if r.name != abi.CallAgent {
		return called[r.name]
	}
	var in struct {
		Send bool `json:"send"`
	}
	return json.Unmarshal(r.body, &in) == nil && in.Send
}
