package prep

// The dispatcher takes the index of an exported function and its arguments as i64, and returns its result as i64:
//
//	block block ... br_table index ... end  arguments; call 0; return  end  arguments; call 1; return  end  unreachable
const dispatchArgs = 6

var dispatchSignature = Signature{[]ValueType{I32, I64, I64, I64, I64, I64, I64}, []ValueType{I64}}

// maxDispatched bounds the dispatcher.
const maxDispatched = 4_000

// planDispatch decides which functions the dispatcher calls.
func (p *parser) planDispatch() map[string]uint32 {
	plan := map[string]uint32{}
	add := func(name string, f uint32) {
		if len(p.dispatched) < maxDispatched && scalar(p.signature(f)) {
			plan[name] = uint32(len(p.dispatched))
			p.dispatched = append(p.dispatched, f)
		}
	}
	if p.start >= 0 {
		add(StartName, uint32(p.start))
	}
	for _, e := range p.exports {
		if e.kind == 0 {
			add(e.name, e.index)
		}
	}
	return plan
}

func scalar(s Signature) bool {
	if len(s.Params) > dispatchArgs || len(s.Results) > 1 {
		return false
	}
	for _, ts := range [][]ValueType{s.Params, s.Results} {
		for _, t := range ts {
			if t != I32 && t != I64 && t != F32 && t != F64 {
				return false
			}
		}
	}
	return true
}

func (p *parser) dispatchBody() []byte {
	n := len(p.dispatched)
	w := []byte{0}
	for range n + 1 {
		w = append(w, opBlock, blockEmpty)
	}
	w = putU32(append(w, opLocalGet, 0, opBrTable), uint32(n))
	for i := range n + 1 {
		w = putU32(w, uint32(i))
	}
	w = append(w, opEnd)
	for _, f := range p.dispatched {
		s := p.signature(f)
		for i, t := range s.Params {
			w = append(putU32(append(w, opLocalGet), uint32(i)+1), narrow(t)...)
		}
		w = putU32(append(w, opCall), p.shift(f))
		if len(s.Results) == 0 {
			w = append(w, opI64Const, 0)
		} else {
			w = append(w, widen(s.Results[0])...)
		}
		w = append(w, opReturn, opEnd)
	}
	return append(w, opUnreachable, opEnd)
}

// narrow converts an i64 to t as hosts encode it, and widen converts back.
func narrow(t ValueType) []byte {
	switch t {
	case I32:
		return []byte{opI32Wrap}
	case F32:
		return []byte{opI32Wrap, opF32FromBits}
	case F64:
		return []byte{opF64FromBits}
	}
	return nil
}

func widen(t ValueType) []byte {
	switch t {
	case I32:
		return []byte{opI64ExtendU}
	case F32:
		return []byte{opF32Bits, opI64ExtendU}
	case F64:
		return []byte{opF64Bits}
	}
	return nil
}
