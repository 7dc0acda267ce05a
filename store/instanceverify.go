package store

import (
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// instances checks that each instance has what its head counts, that nothing is left of one that is not there, and that
// alarms and messages are where Due and Outgoing look.
func (v verifier) instances() error {
	for _, step := range []func() error{v.instHeads, v.instOwners, v.instAgents, v.instGone, v.due, v.out} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (v verifier) instHeads() error {
	return v.walk(prefixInst, func(k key, payload []byte) error {
		id, rest, err := parseInst(k, prefixInst)
		if err == nil && len(rest) > 0 {
			err = corrupt(k, "key names no instance")
		}
		if err != nil {
			return err
		}
		h, err := parseInstHead(k, payload)
		if err != nil {
			return err
		}
		if _, err := mustGet(v.snap, instAgentKey(id.App, id.Agent)); err != nil {
			return err
		}
		more, err := h.more(k)
		if err == nil {
			err = v.blobs(k, more.Snapshot.Blobs)
		}
		if err != nil {
			return err
		}
		there, err := v.instParts(id)
		if err != nil {
			return err
		}
		if err := v.ended(id, h); err != nil {
			return err
		}
		if h.Logs != there.Logs || h.LogBytes != there.LogBytes || h.Alarms != there.Alarms || h.Outbox != there.Outbox ||
			h.Children != there.Children || h.Marks != there.Marks {
			return corrupt(k, "it counts %d logs of %d bytes, %d alarms, %d messages, %d children and %d marks; there are %d of %d, %d, %d, %d and %d",
				h.Logs, h.LogBytes, h.Alarms, h.Outbox, h.Children, h.Marks, there.Logs, there.LogBytes, there.Alarms, there.Outbox, there.Children, there.Marks)
		}
		return nil
	})
}

// ended checks that the marks of an instance and its agent say whether it is being removed.
func (v verifier) ended(id instance.ID, h instHead) error {
	_, mine, err := v.snap.get(instGone(id))
	if err == nil && mine != h.Gone {
		err = corrupt(instGone(id), "the instance does not agree with it")
	}
	if err != nil {
		return err
	}
	_, all, err := v.snap.get(instAgentGoneKey(id.App, id.Agent))
	if err != nil {
		return err
	}
	missing := hasAgent(v.snap, id)
	switch {
	case missing != nil && agent.KindOf(missing) != agent.NotFound:
		return missing
	case missing == nil && all:
		return corrupt(instAgentGoneKey(id.App, id.Agent), "the agent is there")
	case missing != nil && !all:
		return corrupt(instKey(id), "it belongs to nobody: %v", missing)
	}
	return nil
}

// instParts counts what an instance has, and checks that its alarms and messages are named from elsewhere.
func (v verifier) instParts(id instance.ID) (h instHead, err error) {
	prefix := instPart(id, "")
	err = v.walk(prefix, func(k key, payload []byte) error {
		parts := k.parts(string(prefix))
		switch {
		case parts[0] == "alarm" && len(parts) == 2:
			h.Alarms++
			a, err := parseAlarm(k, payload, "")
			if err == nil {
				_, err = mustGet(v.snap, dueFrom(a.At)+key(instPath(id)+"/"+parts[1]))
			}
			return err
		case parts[0] == "child" && len(parts) == 3:
			h.Children++
			return nil
		case parts[0] == "from" && len(parts) == 3:
			h.Marks++
			return parseNumbers(k, payload, new(int64))
		case parts[0] == "to" && len(parts) == 4 && parts[3] == "tail":
			to, err := parsePeer(k, id.App, parts[1:])
			if err != nil {
				return err
			}
			var p pair
			if err := parseNumbers(k, payload, &p.last, &p.got); err != nil {
				return err
			}
			h.Marks++
			h.Outbox += p.last - p.got
			for seq := p.got + 1; seq <= p.last; seq++ {
				if err := v.message(id, to, seq); err != nil {
					return err
				}
			}
			return nil
		case parts[0] == "to" && len(parts) == 5 && parts[3] == "msg":
			to, err := parsePeer(k, id.App, parts[1:])
			if err == nil {
				_, err = mustGet(v.snap, pairKey(id, to))
			}
			return err
		}
		return corrupt(k, "key names no part of an instance")
	})
	if err != nil {
		return h, err
	}
	for _, kind := range []logKind{instanceLog, journalLog} {
		err = v.walk(logsPrefix(kind, id), func(k key, payload []byte) error {
			if strings.HasSuffix(string(k), "/head") {
				h.Logs++
			} else {
				h.LogBytes += int64(len(payload))
			}
			return nil
		})
		if err != nil {
			return h, err
		}
	}
	return h, nil
}

// message checks that a message that waits is where it should be.
func (v verifier) message(from, to instance.ID, seq int64) error {
	k := messageKey(from, to, seq)
	var n int64
	found, err := getNumbers(v.snap, k, &n)
	if err == nil && !found {
		err = corrupt(k, "record is missing")
	}
	if err != nil {
		return err
	}
	b, err := mustGet(v.snap, outKey(n))
	if err != nil {
		return err
	}
	m, err := parseMessage(outKey(n), b)
	if err == nil && (m.From != from || m.To != to || m.Seq != seq) {
		err = corrupt(k, "it names message %d from %q to %q", m.Seq, m.From.Key, m.To.Key)
	}
	return err
}

// instOwners checks that parts and logs belong to an instance.
func (v verifier) instOwners() error {
	for _, prefix := range []string{
		prefixInstPart, prefixLog + instanceLog.String() + "/", prefixLog + journalLog.String() + "/",
	} {
		last := instance.ID{}
		err := v.walk(key(prefix), func(k key, _ []byte) error {
			id, _, err := parseInst(k, prefix)
			if err != nil || id == last {
				return err
			}
			last = id
			_, err = mustGet(v.snap, instKey(id))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// instAgents checks that an agent has as many instances as are counted.
func (v verifier) instAgents() error {
	return v.walk(prefixInstAgent, func(k key, payload []byte) error {
		parts := k.parts(prefixInstAgent)
		if len(parts) != 2 {
			return corrupt(k, "key names no agent")
		}
		var a instAgent
		if err := parseNumbers(k, payload, &a.count, &a.epoch, &a.head); err != nil {
			return err
		}
		n := int64(0)
		app, id := agent.App(parts[0]), agent.AgentID(parts[1])
		err := v.walk(instsKey(app, id), func(key, []byte) error { n++; return nil })
		if err == nil && n != a.count {
			err = corrupt(k, "it counts %d instances, there are %d", a.count, n)
		}
		if err != nil || n > 0 {
			return err
		}
		if err = hasAgent(v.snap, instance.ID{App: app, Agent: id}); err != nil { // the last step of a removal is to come
			_, err = mustGet(v.snap, instAgentGoneKey(app, id))
		}
		return err
	})
}

// instGone checks that what a mark says is to be removed is there.
func (v verifier) instGone() error {
	return v.walk(prefixInstGone, func(k key, _ []byte) error {
		at := prefixInst
		if len(k.parts(prefixInstGone)) == 2 {
			at = prefixInstAgent
		}
		_, err := mustGet(v.snap, key(at)+k[len(prefixInstGone):])
		return err
	})
}

func (v verifier) due() error {
	return v.walk(prefixInstDue, func(k key, _ []byte) error {
		at, id, name, err := parseDue(k)
		if err != nil {
			return err
		}
		b, err := mustGet(v.snap, alarmKey(id, name))
		if err != nil {
			return err
		}
		a, err := parseAlarm(alarmKey(id, name), b, name)
		if err == nil && !a.At.Equal(at) {
			err = corrupt(k, "the alarm is set for %s", a.At)
		}
		if err != nil {
			return err
		}
		var low int64
		if found, err := getNumbers(v.snap, keyInstDue, &low); err != nil || !found {
			if err == nil {
				err = corrupt(keyInstDue, "record is missing")
			}
			return err
		}
		if time.UnixMilli(low).After(at) {
			return corrupt(keyInstDue, "the alarm at %s is earlier", k)
		}
		return nil
	})
}

func (v verifier) out() error {
	return v.walk(prefixInstOut, func(k key, payload []byte) error {
		m, err := parseMessage(k, payload)
		if err != nil {
			return err
		}
		n, _ := k.lastNumber()
		var named int64
		mk := messageKey(m.From, m.To, m.Seq)
		if found, err := getNumbers(v.snap, mk, &named); err != nil || !found || named != n {
			if err == nil {
				err = corrupt(mk, "it does not name %s", k)
			}
			return err
		}
		var all outMark
		if found, err := getNumbers(v.snap, keyInstOut, &all.low, &all.next); err != nil || !found {
			if err == nil {
				err = corrupt(keyInstOut, "record is missing")
			}
			return err
		}
		if n < all.low || n >= all.next {
			return corrupt(keyInstOut, "message %s is not between %d and %d", k, all.low, all.next)
		}
		return nil
	})
}

// entry checks an entry of a journal.
func (v verifier) entry(k key, payload []byte) error {
	e, err := parseEntryOf(k, payload)
	if err == nil {
		err = v.blobs(k, e.Blobs)
	}
	return err
}

// blobs checks that the blobs which the record at k names are there and whole.
func (v verifier) blobs(k key, ds []agent.Digest) error {
	for _, d := range ds {
		if err := v.blob(k, d, "blob "+string(d)); err != nil {
			return err
		}
	}
	return nil
}
