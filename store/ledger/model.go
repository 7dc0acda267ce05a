package ledger

import (
	"time"

	"github.com/skep-dev/skep/agent"
)

// appendModel appends the fields of a call of a model.
func appendModel(b []byte, m *agent.ModelUse) []byte {
	num := func(field int, v int64) { b = appendNumber(b, field, v) }
	text := func(field int, s string) { b = appendText(b, field, s, maxText) }
	text(fieldCall, m.Call)
	text(fieldProvider, m.Provider)
	text(fieldModel, m.Model)
	text(fieldRoute, m.Route)
	num(fieldProtocol, int64(m.Protocol))
	text(fieldKey, m.Key)
	text(fieldSecret, m.Secret)
	text(fieldUser, m.User)
	num(fieldAttempt, int64(m.Attempt))
	num(fieldFault, int64(m.Fault))
	num(fieldSource, int64(m.Source))
	t := &m.Tokens
	for i, n := range [...]int64{
		t.Input, t.CacheRead, t.CacheWrite, t.CacheWrite1h, t.AudioIn, t.Output, t.Reasoning, t.AudioOut, t.Searches,
	} {
		num(fieldInput+i, n)
	}
	if m.Micro != nil {
		num(fieldMicro, max(*m.Micro, 0)+1)
	}
	text(fieldPrices, m.Prices)
	num(fieldFirst, int64(m.First))
	if len(m.Raw) <= agent.MaxRawUsage {
		b = appendText(b, fieldRaw, m.Raw, agent.MaxRawUsage)
	}
	return b
}

func modelOf(e *agent.UsageEvent) *agent.ModelUse {
	if e.Model == nil {
		e.Model = &agent.ModelUse{}
	}
	return e.Model
}

func setModelNumber(e *agent.UsageEvent, field uint64, v int64) {
	if field < fieldCall || field > fieldRaw {
		return
	}
	m := modelOf(e)
	t := &m.Tokens
	switch field {
	case fieldProtocol:
		m.Protocol = agent.Protocol(v)
	case fieldAttempt:
		m.Attempt = int(v)
	case fieldFault:
		m.Fault = agent.FaultClass(v)
	case fieldSource:
		m.Source = agent.UseSource(v)
	case fieldMicro:
		v--
		m.Micro = &v
	case fieldFirst:
		m.First = time.Duration(v)
	case fieldInput, fieldCacheRead, fieldCacheWrite, fieldCacheWrite1h, fieldAudioIn, fieldOutput, fieldReasoning, fieldAudioOut, fieldSearches:
		to := [...]*int64{
			&t.Input, &t.CacheRead, &t.CacheWrite, &t.CacheWrite1h, &t.AudioIn, &t.Output, &t.Reasoning, &t.AudioOut, &t.Searches,
		}
		*to[field-fieldInput] = v
	}
}

func setModelText(e *agent.UsageEvent, field uint64, s string) {
	if field < fieldCall || field > fieldRaw {
		return
	}
	m := modelOf(e)
	switch field {
	case fieldCall:
		m.Call = s
	case fieldProvider:
		m.Provider = s
	case fieldModel:
		m.Model = s
	case fieldRoute:
		m.Route = s
	case fieldKey:
		m.Key = s
	case fieldSecret:
		m.Secret = s
	case fieldUser:
		m.User = s
	case fieldPrices:
		m.Prices = s
	case fieldRaw:
		m.Raw = s
	}
}
