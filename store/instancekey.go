package store

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

func instPath(id instance.ID) string {
	return string(id.App) + "/" + instTail(id)
}

// instTail is how an instance is named among those of its app.
func instTail(id instance.ID) string { return string(id.Agent) + "/" + escaped(id.Key) }

func instKey(id instance.ID) key { return join(prefixInst, instPath(id)) }
func instsKey(app agent.App, id agent.AgentID) key {
	return join(prefixInst, string(app), string(id), "")
}
func instPart(id instance.ID, part ...string) key {
	return join(prefixInstPart+instPath(id)+"/", part...)
}
func instGone(id instance.ID) key { return join(prefixInstGone, instPath(id)) }
func instAgentKey(app agent.App, id agent.AgentID) key {
	return join(prefixInstAgent, string(app), string(id))
}
func instAgentGoneKey(app agent.App, id agent.AgentID) key {
	return join(prefixInstGone, string(app), string(id))
}
func outKey(n int64) key                       { return prefixInstOut + number(n) }
func alarmKey(id instance.ID, name string) key { return instPart(id, "alarm", escaped(name)) }
func fromKey(id, from instance.ID) key         { return instPart(id, "from", instTail(from)) }
func childKey(id, child instance.ID) key       { return instPart(id, "child", instTail(child)) }
func pairKey(id, to instance.ID) key           { return instPart(id, "to", instTail(to), "tail") }
func messageKey(id, to instance.ID, seq int64) key {
	return instPart(id, "to", instTail(to), "msg", string(number(seq)))
}
func dueKey(at time.Time, id instance.ID, name string) key {
	return dueFrom(at) + key(instPath(id)+"/"+escaped(name))
}
func dueFrom(at time.Time) key { return prefixInstDue + number(at.UnixMilli()) + "/" }

// instanceState is the state of an instance, which its commits edit.
func instanceState(id instance.ID) Owner { return Owner{instanceOwner, id.App, instTail(id)} }

// instance returns whose state it is.
func (o Owner) instance() (instance.ID, error) {
	id, rest, err := parseInst(o.headKey(), prefixState+instanceOwner.String()+"/")
	if err == nil && len(rest) != 1 {
		err = corrupt(o.headKey(), "key names no instance")
	}
	return id, err
}

// instanceLogOf returns where a log of an instance is kept.
func instanceLogOf(id instance.ID, l instance.Log) Log {
	switch {
	case l.Session != "":
		return SessionLog(id.App, l.Session)
	case l.Run != "":
		return Log{journalLog, id.App, instTail(id) + "/" + string(l.Run)}
	}
	return Log{instanceLog, id.App, instTail(id) + "/" + l.Name}
}

// logsPrefix begins the keys of all logs of that kind that an instance has.
func logsPrefix(kind logKind, id instance.ID) key {
	return join(prefixLog, kind.String(), instPath(id), "")
}

// parseInst returns the instance that a key names behind prefix, and the parts of the key behind it.
func parseInst(k key, prefix string) (id instance.ID, rest []string, err error) {
	parts := k.parts(prefix)
	if len(parts) < 3 {
		return id, nil, corrupt(k, "key names no instance")
	}
	id = instance.ID{App: agent.App(parts[0]), Agent: agent.AgentID(parts[1])}
	if id.Key, err = unescaped(parts[2]); err != nil {
		return id, nil, corrupt(k, "%v", err)
	}
	return id, parts[3:], nil
}

// parsePeer returns the instance that two parts of a key name.
func parsePeer(k key, app agent.App, parts []string) (id instance.ID, err error) {
	if len(parts) < 2 {
		return id, corrupt(k, "key names no second instance")
	}
	id = instance.ID{App: app, Agent: agent.AgentID(parts[0])}
	if id.Key, err = unescaped(parts[1]); err != nil {
		return id, corrupt(k, "%v", err)
	}
	return id, nil
}

// parseDue returns what the key of a due alarm says.
func parseDue(k key) (at time.Time, id instance.ID, name string, err error) {
	if len(k) < len(prefixInstDue)+17 {
		return at, id, "", corrupt(k, "key names no alarm")
	}
	ms, ok := k[:len(prefixInstDue)+16].lastNumber()
	if !ok {
		return at, id, "", corrupt(k, "key has no time")
	}
	id, rest, err := parseInst(k, prefixInstDue+string(number(ms))+"/")
	if err == nil && len(rest) != 1 {
		err = corrupt(k, "key names no alarm")
	}
	if err == nil {
		if name, err = unescaped(rest[0]); err != nil {
			err = corrupt(k, "%v", err)
		}
	}
	if at = time.UnixMilli(ms).UTC(); err == nil && dueKey(at, id, name) != k {
		err = corrupt(k, "key is not written as it should be")
	}
	return at, id, name, err
}

// encodeNumbers returns a record of a few numbers, none of which is negative.
func encodeNumbers(ns ...int64) []byte {
	var b []byte
	for _, n := range ns {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// getNumbers reads a record of as many numbers as into has, if it is there.
func getNumbers(g getter, k key, into ...*int64) (found bool, err error) {
	b, found, err := g.get(k)
	if err != nil || !found {
		return false, err
	}
	return true, parseNumbers(k, b, into...)
}

func parseNumbers(k key, b []byte, into ...*int64) error {
	if len(b) != 8*len(into) {
		return corrupt(k, "%v", errShort)
	}
	for i, p := range into {
		if *p = int64(binary.BigEndian.Uint64(b[8*i:])); *p < 0 {
			return corrupt(k, "a number is negative")
		}
	}
	return nil
}

// Instance returns the instance that what is damaged belongs to, if it is a part of one.
func (e *CorruptError) Instance() (id instance.ID, ok bool) {
	for _, prefix := range []string{
		prefixInst, prefixInstPart, prefixInstGone, prefixLog + instanceLog.String() + "/", prefixLog + journalLog.String() + "/",
		prefixState + instanceOwner.String() + "/",
	} {
		if strings.HasPrefix(e.What, prefix) {
			id, _, err := parseInst(key(e.What), prefix)
			return id, err == nil
		}
	}
	_, id, _, err := parseDue(key(e.What))
	return id, err == nil
}
