package script

import (
	"encoding/json"
	"sort"
	"strings"
	"sync"

	"github.com/skep-dev/skep/agent"
)

// SourceMap leads from places in a bundle back to the author's files (ECMA-426). It is decoded at its first use and safe
// for concurrent use.
type SourceMap struct {
	raw     []byte
	once    sync.Once
	sources []string
	lines   [][]mapping // by line of the bundle
}

// mapping says where column col of a bundle's line comes from. All numbers count from 0.
type mapping struct{ col, source, line, column int32 }

// NewSourceMap returns the map that raw, a source map in JSON, describes. One that is not valid maps nothing.
func NewSourceMap(raw []byte) *SourceMap { return &SourceMap{raw: raw} }

// Raw returns what the map was made of.
func (m *SourceMap) Raw() []byte { return m.raw }

// Size returns the bytes that the map holds, roughly.
func (m *SourceMap) Size() int { return len(m.raw) }

// Find returns the author's place for a line and column of the bundle, both from 1.
func (m *SourceMap) Find(line, column int) (agent.Pos, bool) {
	m.once.Do(m.decode)
	if line < 1 || line > len(m.lines) {
		return agent.Pos{}, false
	}
	row := m.lines[line-1]
	i := sort.Search(len(row), func(i int) bool { return int(row[i].col) > column-1 }) - 1
	if i < 0 {
		if len(row) == 0 {
			return agent.Pos{}, false
		}
		i = 0
	}
	f := row[i]
	if f.source < 0 || int(f.source) >= len(m.sources) {
		return agent.Pos{}, false
	}
	return agent.Pos{File: m.sources[f.source], Line: int(f.line) + 1, Column: int(f.column) + 1}, true
}

func (m *SourceMap) decode() {
	var in struct {
		Sources  []string `json:"sources"`
		Mappings string   `json:"mappings"`
	}
	if json.Unmarshal(m.raw, &in) != nil {
		return
	}
	for _, s := range in.Sources {
		m.sources = append(m.sources, strings.TrimPrefix(s, namespace+":"))
	}
	m.lines = decodeMappings(in.Mappings)
}

// decodeMappings reads the segments of a map. What is not valid ends it.
func decodeMappings(s string) [][]mapping {
	var lines [][]mapping
	var row []mapping
	var source, line, column int32
	col := int32(0)
	for len(s) > 0 {
		switch s[0] {
		case ';':
			lines, row, col, s = append(lines, row), nil, 0, s[1:]
			continue
		case ',':
			s = s[1:]
			continue
		}
		var f [5]int32
		n := 0
		for len(s) > 0 && s[0] != ',' && s[0] != ';' && n < len(f) {
			var ok bool
			if f[n], s, ok = vlq(s); !ok {
				return append(lines, row)
			}
			n++
		}
		col += f[0]
		switch n {
		case 1:
			row = append(row, mapping{col: col, source: -1})
		case 4, 5:
			source, line, column = source+f[1], line+f[2], column+f[3]
			row = append(row, mapping{col, source, line, column})
		default:
			return append(lines, row)
		}
	}
	return append(lines, row)
}

const base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// vlq reads one variable-length number: five bits a digit, lowest first, the sign in the lowest bit.
func vlq(s string) (v int32, rest string, ok bool) {
	u := uint64(0)
	for i := 0; i < len(s) && i < 7; i++ {
		d := strings.IndexByte(base64Digits, s[i])
		if d < 0 {
			return 0, s, false
		}
		u |= uint64(d&31) << (5 * i)
		if d&32 == 0 {
			v = int32(u >> 1)
			if u&1 != 0 {
				v = -v
			}
			return v, s[i+1:], true
		}
	}
	return 0, s, false
}
