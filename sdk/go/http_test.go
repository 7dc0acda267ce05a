//go:build !wasip1

package skep

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestFetch(t *testing.T) {
	host := &Fake{Fetch: func(r Request) (*Response, error) {
		if r.URL == "https://down.test/" {
			return nil, errors.New("the host is down")
		}
		if r.Method != "GET" || !slices.Contains(r.Header, [2]string{"authorization", "Bearer {{secret:api}}"}) {
			t.Errorf("asked %+v", r)
		}
		return &Response{Status: 201, Header: [][2]string{{"X-A", "1"}, {"x-a", "2"}}, Body: []byte("hi")}, nil
	}}
	ask := func(url string) func() int32 {
		return func() int32 {
			return Do(func(struct{}) (string, error) {
				res, err := Fetch(Request{URL: url, Header: [][2]string{{"authorization", "Bearer " + Secret("api")}}})
				if err != nil {
					return "", err
				}
				if res.Status != 201 || res.Get("X-a") != "1, 2" || res.Get("x-b") != "" {
					t.Errorf("got %+v", res)
				}
				return string(res.Body), nil
			})
		}
	}
	var got string
	if err := host.Call(ask("https://up.test/"), nil, &got); err != nil || got != "hi" {
		t.Errorf("%q, %v", got, err)
	}
	if err := host.Call(ask("https://down.test/"), nil, nil); err == nil || err.Error() != "the host is down" {
		t.Errorf("%v", err)
	}
	if err := (&Fake{}).Call(ask("https://up.test/"), nil, nil); err == nil || !strings.Contains(err.Error(), "no host is granted") {
		t.Errorf("without grants: %v", err)
	}
}

func TestSecret(t *testing.T) {
	for _, name := range []string{"a", "git.hub_1-x", strings.Repeat("a", 63)} {
		if got := Secret(name); got != "{{secret:"+name+"}}" {
			t.Errorf("%q", got)
		}
	}
	for _, name := range []string{"", "A", "-a", "a.", "a}}", "a b", "é", strings.Repeat("a", 64)} {
		func() {
			defer func() {
				if p := recover(); p == nil || !strings.Contains(p.(string), "is not the name of a secret") {
					t.Errorf("%q: %v", name, p)
				}
			}()
			Secret(name)
		}()
	}
}
