package sqldb

import (
	"bytes"
	"testing"
)

func FuzzPage(f *testing.F) {
	half := make([]byte, PageSize)
	copy(half, "head")
	copy(half[3000:], "tail")
	full := bytes.Repeat([]byte{1}, PageSize)
	for _, page := range [][]byte{half, full, make([]byte, PageSize)} {
		f.Add(encode(page))
	}
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		page, err := decode(b)
		if err != nil {
			page = make([]byte, PageSize) // then b is a page's content
			copy(page, b)
		}
		again, err := decode(encode(page))
		if err != nil || !bytes.Equal(again, page) {
			t.Fatalf("a page is not what it was: %v", err)
		}
		if _, err := headSize(page); err == nil && string(page[:15]) != "SQLite format 3" {
			t.Fatal("a page without the mark has a size")
		}
	})
}
