package egress

import (
	"time"
)

// Limits bounds requests. A zero field means the default.
type Limits struct {
	Connect time.Duration // to resolve a name and connect
	TLS     time.Duration // to shake hands
	Header  time.Duration // from the request's end to the response's header
	Idle    time.Duration // without a byte of a body, while one is waited for
	Total   time.Duration // from the start to the end of the response's body, redirects included

	RequestBytes   int64 // of a request's body
	RequestHeaders int   // headers of a request
	RequestHeader  int64 // bytes of a request's headers
	URL            int   // bytes of a URL

	ResponseBytes   int64 // of a response's body, as it came and as decoded
	ResponseHeaders int   // headers of a response
	ResponseHeader  int64 // bytes of a response's header
	Informational   int   // responses before the response: 100 to 199
	Redirects       int

	PerOwner   int           // requests of one owner at once; of Options only
	Concurrent int           // requests of all owners at once; of Options only
	Wait       time.Duration // for another request to end, when there are as many as may be at once
	Owners     int           // owners that keep idle connections; of Options only
}

// DefaultLimits is what Options leave out.
func DefaultLimits() Limits {
	return Limits{
		Connect: 10 * time.Second, TLS: 10 * time.Second, Header: time.Minute, Idle: time.Minute, Total: 10 * time.Minute,
		RequestBytes: 32 << 20, RequestHeaders: 100, RequestHeader: 64 << 10, URL: 16 << 10,
		ResponseBytes: 32 << 20, ResponseHeaders: 200, ResponseHeader: 128 << 10, Informational: 5, Redirects: 10,
		PerOwner: 64, Concurrent: 1024, Wait: 10 * time.Second, Owners: 256,
	}
}

// or returns l with its zero fields taken from d.
func (l Limits) or(d Limits) Limits {
	l.each(&d, func(got, other int64) int64 {
		if got == 0 {
			return other
		}
		return got
	})
	return l
}

// within returns l with no field above d's.
func (l Limits) within(d Limits) Limits {
	l.each(&d, func(got, other int64) int64 {
		if got <= 0 || got > other {
			return other
		}
		return got
	})
	return l
}

func (l *Limits) each(d *Limits, f func(got, other int64) int64) {
	for _, p := range [...]struct{ got, other *time.Duration }{
		{&l.Connect, &d.Connect}, {&l.TLS, &d.TLS}, {&l.Header, &d.Header}, {&l.Idle, &d.Idle}, {&l.Total, &d.Total}, {&l.Wait, &d.Wait},
	} {
		*p.got = time.Duration(f(int64(*p.got), int64(*p.other)))
	}
	for _, p := range [...]struct{ got, other *int64 }{
		{&l.RequestBytes, &d.RequestBytes}, {&l.RequestHeader, &d.RequestHeader},
		{&l.ResponseBytes, &d.ResponseBytes}, {&l.ResponseHeader, &d.ResponseHeader},
	} {
		*p.got = f(*p.got, *p.other)
	}
	for _, p := range [...]struct{ got, other *int }{
		{&l.RequestHeaders, &d.RequestHeaders}, {&l.URL, &d.URL}, {&l.ResponseHeaders, &d.ResponseHeaders},
		{&l.Informational, &d.Informational}, {&l.Redirects, &d.Redirects},
		{&l.PerOwner, &d.PerOwner}, {&l.Concurrent, &d.Concurrent}, {&l.Owners, &d.Owners},
	} {
		*p.got = int(f(int64(*p.got), int64(*p.other)))
	}
}
