package prep

// meter writes the code that charges fuel, which is in a global, or in the local fuel.
type meter struct {
	p     *parser
	fuel  uint32
	local bool
}

func (m meter) get(w []byte) []byte {
	if m.local {
		return putU32(append(w, opLocalGet), m.fuel)
	}
	return putU32(append(w, opGlobalGet), m.p.fuelGlobal())
}

func (m meter) set(w []byte) []byte {
	if m.local {
		return putU32(append(w, opLocalSet), m.fuel)
	}
	return putU32(append(w, opGlobalSet), m.p.fuelGlobal())
}

// charge appends: fuel -= cost.
func (m meter) charge(w []byte, cost int64) []byte {
	w = putS64(append(m.get(w), opI64Const), cost)
	return m.set(append(w, opI64Sub))
}

// check appends: fuel -= cost; if fuel < 0 { fuel = refill(fuel) }.
func (m meter) check(w []byte, cost int64) []byte {
	return m.checkRest(putS64(append(m.get(w), opI64Const), cost))
}

// checkRest is check with the fuel and the cost on the stack.
func (m meter) checkRest(w []byte) []byte {
	w = putU32(append(w, opI64Sub, opLocalTee), m.fuel)
	if !m.local {
		w = m.set(w)
		w = putU32(append(w, opLocalGet), m.fuel)
	}
	w = append(w, opI64Const, 0, opI64LtS, opIf, blockEmpty)
	w = putU32(append(w, opLocalGet), m.fuel)
	w = putU32(append(w, opCall), m.p.refill())
	return append(m.set(w), opEnd)
}
