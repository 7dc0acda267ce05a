package store

import (
	"encoding/hex"
	"errors"
	"strings"
)

// escape tells what stands before the two hexadecimal digits of a byte that a part of a key cannot hold as it is, or 0 for
// one that it can. Escapes are chosen so that keys sort as what they stand for: of the bytes that share one, none lies on the
// other side of a byte that has none.
func escape(c byte) byte {
	switch {
	case c <= '!':
		return '!'
	case c == '.' || c == '/':
		return '.'
	case c >= '~':
		return '~'
	}
	return 0
}

// escaped returns any bytes as one part of a key, in the same order and with the same prefixes.
func escaped(s string) string {
	plain := true
	for i := range len(s) {
		plain = plain && escape(s[i]) == 0
	}
	if plain {
		return s
	}
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := range len(s) {
		if e := escape(s[i]); e != 0 {
			b.Write([]byte{e, digits[s[i]>>4], digits[s[i]&15]})
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

var errEscape = errors.New("part of the key is not escaped as it should be")

// unescaped is the inverse of escaped. It refuses what escaped does not write.
func unescaped(s string) (string, error) {
	if !strings.ContainsAny(s, "!.~") {
		for i := range len(s) {
			if escape(s[i]) != 0 {
				return "", errEscape
			}
		}
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		e := escape(s[i])
		if e == 0 {
			b.WriteByte(s[i])
			continue
		}
		if e != s[i] || len(s)-i < 3 {
			return "", errEscape
		}
		c, err := hex.DecodeString(s[i+1 : i+3])
		if err != nil || escape(c[0]) != e || strings.ToLower(s[i+1:i+3]) != s[i+1:i+3] {
			return "", errEscape
		}
		b.WriteByte(c[0])
		i += 2
	}
	return b.String(), nil
}
