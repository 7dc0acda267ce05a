package cache_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/gateway/cache"
)

func TestBounds(t *testing.T) {
	now := time.Unix(1e9, 0)
	c := cache.New(10_000)
	key := func(i int) cache.Key { return cache.KeyOf(fmt.Appendf(nil, "%d", i)) }
	for i := range 9 {
		c.Put(key(i), &cache.Answer{Status: i}, 1500, now.Add(time.Minute))
		if i >= 1 && c.Get(key(1), now) == nil { // it stays for as long as it is used
			t.Fatalf("after %d the one that was used is gone", i)
		}
	}
	if c.Size() > 10_000 || c.Len() != 4 {
		t.Errorf("%d answers of %d bytes are kept", c.Len(), c.Size())
	}
	if c.Get(key(0), now) != nil || c.Get(key(8), now).Status != 8 {
		t.Error("the wrong ones are gone")
	}
	c.Put(key(8), &cache.Answer{Status: 80}, 10, now.Add(time.Second))
	if a := c.Get(key(8), now); a == nil || a.Status != 80 {
		t.Error("the newer answer is not there")
	}
	if c.Get(key(8), now.Add(time.Second)) != nil {
		t.Error("an answer is given after its time")
	}
	c.Put(key(1), &cache.Answer{}, 20_000, now.Add(time.Minute))
	if c.Get(key(1), now) != nil {
		t.Error("an answer is kept that is larger than all")
	}
	for i := range 9 {
		c.Put(key(i), &cache.Answer{}, 20_000, now)
	}
	if c.Len() != 0 || c.Size() != 0 {
		t.Errorf("%d bytes are counted of %d answers", c.Size(), c.Len())
	}
}

func TestConcurrently(t *testing.T) {
	c := cache.New(5000)
	now := time.Now()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 200 {
				k := cache.KeyOf([]byte{byte(i % 20), byte(g % 2)})
				c.Put(k, &cache.Answer{}, i, now.Add(time.Hour))
				c.Get(k, now)
			}
		})
	}
	wg.Wait()
	if c.Size() > 5000 {
		t.Error(c.Size())
	}
}

func TestKeys(t *testing.T) {
	if cache.KeyOf([]byte("ab"), []byte("c")) == cache.KeyOf([]byte("a"), []byte("bc")) {
		t.Error("the border between parts is lost")
	}
	same := func(a, b string) bool {
		x, err := cache.Normal([]byte(a), "user")
		if err != nil {
			t.Fatal(err)
		}
		y, err := cache.Normal([]byte(b), "user")
		if err != nil {
			t.Fatal(err)
		}
		return string(x) == string(y)
	}
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`{"a":1,"b":{"c":2,"d":[1,2]}}`, ` { "b" : {"d":[1, 2],"c":2}, "a":1, "user":"x"}`, true},
		{`{"a":1}`, `{"a":1,"future":null}`, false},
		{`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{`{"a":12345678901234567890}`, `{"a":12345678901234567891}`, false},
		{`{"a":"\u00e9"}`, `{"a":"é"}`, true},
		{`{"a":{"user":"x"}}`, `{"a":{"user":"y"}}`, false},
	} {
		if same(c.a, c.b) != c.want {
			t.Errorf("%s and %s: %v", c.a, c.b, !c.want)
		}
	}
}
