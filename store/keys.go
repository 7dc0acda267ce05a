package store

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// Every key is printable text with its parts set apart by slashes, which no part contains. APP is an app's name; numbers
// are 16 hexadecimal digits, so that they sort.
//
//	meta/format                      format of the whole store (format.go)
//	meta/commit                      number of the newest commit; every batch writes it (commit.go)
//	meta/vault                       what is known of the keys that secrets are under (secrets.go)
//	meta/image-seed                  what modules draw from while they are initialised (seed.go)
//
// A collection is one SPACE (apps, plugins, agents, sessions, runs, tokens, secrets) of one app (collection.go):
//
//	head/SPACE/APP                   newest ordinal, and how many records are live
//	ord/SPACE/APP/ORDINAL            the record's id, or nothing when it was deleted; gapless from 1
//	rec/plugins/APP/NAME@VERSION     plugin
//	rec/agents/APP/NAME              agent
//	rec/sessions/APP/SESSION         session
//	rec/runs/APP/RUN                 run
//	rec/tokens/-/TOKEN               token, and the hash of its secret
//	rec/secrets/APP/NAME             secret, and which of its versions are kept
//	sealed/APP/NAME/VERSION          value of one version of a secret, encrypted
//	rec/apps/-/APP                   app; the default one has none until it is changed
//
// Indexes name records by id:
//
//	by/plugin-name/APP/NAME          id of the newest plugin of that name
//	by/plugin-digest/APP/HEX         id of the first plugin with that digest
//	by/agent-id/APP/AGENT            name of the agent with that id
//	by/session-agent/APP/NAME/ORD    session, by agent
//	by/run-agent/APP/NAME/ORD        run, by agent
//	by/run-session/APP/SESSION/ORD   run, by session
//	by/run-live/APP/ORD              run that is queued or running
//	by/run-parked/APP/ORD            run that has not ended and is neither
//	by/run-asking/APP/ORD            run that has open questions
//	by/token-hash/-/HEX              token, by the SHA-256 of its secret
//
// Logs (log.go), where KIND is session, agent or audit and ID the session's or agent's id, or "-":
//
//	log/KIND/APP/ID/head             numbers of the first and the newest event
//	log/KIND/APP/ID/event/SEQ        event
//	log-taken/APP/SOURCE             number, at its source, of the newest event that was taken from there into a log (appendonce.go)
//	log-sources/APP                  how many of those an app has
//
// States (state.go), where KIND and ID are the owner's and KEY is escaped (statekey.go):
//
//	state/KIND/APP/ID/at/KEY         entry: version, media type, value
//	state/KIND/APP/ID/head           version of the newest commit, numbers of keys and bytes
//	state-gone/KIND/APP/ID           the owner was deleted; what is left of its state is being removed
//
// Instances (instances.go), where AGENT is an agent's id, and KEY, NAME and TO (AGENT/KEY of another instance) are escaped. Their
// logs are of the kind instance, with AGENT/KEY/NAME for an ID, or journal, with AGENT/KEY/RUN; their states of the kind instance:
//
//	inst/APP/AGENT/KEY               fence, newest batch, counts
//	inst-part/APP/AGENT/KEY/PART     alarm/NAME, child/TO, from/TO (newest mark), to/TO/msg/SEQ (number of a message that waits),
//	                                 to/TO/tail (newest message, and newest that was received)
//	inst-agent/APP/AGENT             how many there are of an agent, highest fence of one that was deleted
//	inst-gone/APP/AGENT[/KEY]        deleted; what is left is being removed
//	inst-due/MS/APP/AGENT/KEY/NAME   alarm, by its Unix milliseconds
//	inst-out/NUMBER                  message that waits, by the order of commits
//	inst-mark/due, inst-mark/out     below what no alarm is due; below what no message waits, and the next one's number
//
// Documents (docs.go), where SPACE is one of docSpaces and NAME is escaped. GROUP is what is counted together: a session's files, and all others of
// a space, as "-":
//
//	doc/SPACE/APP/NAME               document: its revision, and JSON
//	doc/environment-revisions/APP/NAME@REVISION, doc/frozen-environments/APP/SESSION/NAME: see environments.go
//	doc-head/SPACE/APP/GROUP         newest revision, numbers of documents and bytes
//	doc-gone/APP                     the app was deleted; what is left of its documents is being removed
//	model-key/HEX                    APP/ID of the virtual key (modelkeys.go) whose value has that SHA-256
//
// Sandboxes (sandboxes.go), which outlive their apps until nothing of them is left; FOR is escaped:
//
//	sandbox/SANDBOX                  sandbox
//	sandbox-app/APP/SANDBOX          sandbox, by app
//	sandbox-for/APP/FOR              id of the sandbox that is FOR's, unless it is being deleted
//	sandbox-head/APP                 how many an app has, and how many of those are somebody's
//
// Idempotency keys (once.go), where HASH is the SHA-256 of scope and key:
//
//	once/HASH                        what was asked and which record it made
//	once-until/SECONDS/HASH          when to forget it
//
// Usage (usage.go), where DAY is 2006-01-02 in UTC and AGENT a name or "-":
//
//	usage/mark                       how far the rollups have come in the ledger's files, and what they add up to
//	usage/row/DAY/APP/AGENT/KIND     rollup
//	usage/use/DAY/APP/HASH           uses of one grant by one agent
//	usage/model/DAY/APP/HASH         rollup of calls of one model, told apart by agent, route, user and key too
type key string

const (
	keyFormat key = "meta/format"
	keyCommit key = "meta/commit"
	keyVault  key = "meta/vault"
	keySeed   key = "meta/image-seed"

	keyUsageMark key = "usage/mark"
	keyInstDue   key = "inst-mark/due"
	keyInstOut   key = "inst-mark/out"

	prefixUsageRow  = "usage/row/"
	prefixUsageUse  = "usage/use/"
	prefixUsageMod  = "usage/model/"
	prefixModelKey  = "model-key/"
	prefixInst      = "inst/"
	prefixInstPart  = "inst-part/"
	prefixInstAgent = "inst-agent/"
	prefixInstGone  = "inst-gone/"
	prefixInstDue   = "inst-due/"
	prefixInstOut   = "inst-out/"

	prefixHead      = "head/"
	prefixOrd       = "ord/"
	prefixRec       = "rec/"
	prefixBy        = "by/"
	prefixLog       = "log/"
	prefixSealed    = "sealed/"
	prefixOnce      = "once/"
	prefixOnceUntil = "once-until/"
	prefixState     = "state/"
	prefixStateGone = "state-gone/"
	prefixDoc       = "doc/"
	prefixDocHead   = "doc-head/"
	prefixDocGone   = "doc-gone/"

	prefixTaken       = "log-taken/"
	prefixSources     = "log-sources/"
	prefixSandbox     = "sandbox/"
	prefixSandboxApp  = "sandbox-app/"
	prefixSandboxFor  = "sandbox-for/"
	prefixSandboxHead = "sandbox-head/"
)

// space is the name of a collection.
type space string

const (
	plugins  space = "plugins"
	agents   space = "agents"
	sessions space = "sessions"
	runs     space = "runs"
	tokens   space = "tokens"
	secrets  space = "secrets"
	apps     space = "apps"
)

// noApp stands where an app's name would, for what belongs to no app.
const noApp agent.App = "-"

// index is the name of an index.
type index string

const (
	byPluginName   index = "plugin-name"
	byPluginDigest index = "plugin-digest"
	byAgentID      index = "agent-id"
	bySessionAgent index = "session-agent"
	byRunAgent     index = "run-agent"
	byRunSession   index = "run-session"
	byRunLive      index = "run-live"
	byRunParked    index = "run-parked"
	byRunAsking    index = "run-asking"
	byTokenHash    index = "token-hash"
)

func headKey(sp space, app agent.App) key           { return join(prefixHead, string(sp), string(app)) }
func ordKey(sp space, app agent.App, ord int64) key { return ordPrefix(sp, app) + number(ord) }
func ordPrefix(sp space, app agent.App) key         { return join(prefixOrd, string(sp), string(app), "") }
func recKey(sp space, app agent.App, id string) key {
	return join(prefixRec, string(sp), string(app), id)
}

// byKey is an index entry that names one record, byOrdKey one of many.
func byKey(ix index, app agent.App, what string) key {
	return join(prefixBy, string(ix), string(app), what)
}
func byPrefix(ix index, app agent.App, what string) key {
	if ix == byRunLive || ix == byRunParked || ix == byRunAsking {
		return join(prefixBy, string(ix), string(app), "")
	}
	return join(prefixBy, string(ix), string(app), what, "")
}
func byOrdKey(ix index, app agent.App, what string, ord int64) key {
	return byPrefix(ix, app, what) + number(ord)
}

func sealedKey(app agent.App, name string, version int) key {
	return join(prefixSealed, string(app), name, "") + number(int64(version))
}

func (l Log) headKey() key { return join(prefixLog, l.kind.String(), string(l.app), l.id, "head") }
func (l Log) eventPrefix() key {
	return join(prefixLog, l.kind.String(), string(l.app), l.id, "event", "")
}
func (l Log) eventKey(seq int64) key { return l.eventPrefix() + number(seq) }

func (o Owner) headKey() key { return join(prefixState, o.kind.String(), string(o.app), o.id, "head") }
func (o Owner) goneKey() key { return join(prefixStateGone, o.kind.String(), string(o.app), o.id) }
func (o Owner) entryPrefix() key {
	return join(prefixState, o.kind.String(), string(o.app), o.id, "at", "")
}
func (o Owner) entryKey(name string) key { return o.entryPrefix() + key(escaped(name)) }

func onceKey(hash [32]byte) key { return prefixOnce + key(hex.EncodeToString(hash[:])) }
func onceUntilKey(unix int64, hash [32]byte) key {
	return prefixOnceUntil + number(unix) + "/" + key(hex.EncodeToString(hash[:]))
}

func join(prefix string, parts ...string) key {
	n := len(prefix) + len(parts)
	for _, p := range parts {
		n += len(p)
	}
	var b strings.Builder
	b.Grow(n)
	b.WriteString(prefix)
	for i, p := range parts {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(p)
	}
	return key(b.String())
}

func number(n int64) key {
	const digits = "0123456789abcdef"
	var b [16]byte
	for i := range b {
		b[i] = digits[uint64(n)>>(60-4*i)&15]
	}
	return key(b[:])
}

// lastNumber returns the number that k ends with.
func (k key) lastNumber() (int64, bool) {
	if len(k) < 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(k[len(k)-16:]), 16, 63)
	return int64(n), err == nil
}

// parts returns what stands between the slashes after prefix.
func (k key) parts(prefix string) []string {
	return strings.Split(strings.TrimPrefix(string(k), prefix), "/")
}

// isPart reports whether each s can be one part of a key. What cannot be one names nothing that is stored.
func isPart(ss ...string) bool {
	for _, s := range ss {
		if s == "" || len(s) > 160 {
			return false
		}
		for i := range len(s) {
			if s[i] <= ' ' || s[i] > '~' || s[i] == '/' {
				return false
			}
		}
	}
	return true
}
