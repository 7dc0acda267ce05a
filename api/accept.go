package api

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

const (
	typeJSON   = "application/json"
	typeSSE    = "text/event-stream"
	typeNDJSON = "application/x-ndjson"
)

// negotiate picks the offer that an Accept header (RFC 9110, section 12.5.1) likes best, the earlier of two equals. An
// absent header takes the first.
func negotiate(accept string, offers ...string) (string, error) {
	if strings.TrimSpace(accept) == "" {
		return offers[0], nil
	}
	best, bestQ := "", 0.0
	for _, offer := range offers {
		if q := quality(accept, offer); q > bestQ {
			best, bestQ = offer, q
		}
	}
	if best == "" {
		return "", invalidAs(http.StatusNotAcceptable, "this resource has no form that the Accept header allows",
			"ask for one of "+strings.Join(offers, ", "))
	}
	return best, nil
}

// quality returns the weight of the most specific range in accept that matches the media type, 0 when none does.
func quality(accept, offer string) float64 {
	major, _, _ := strings.Cut(offer, "/")
	q, specific := 0.0, -1
	for r := range strings.SplitSeq(accept, ",") {
		t, params, err := mime.ParseMediaType(r)
		if err != nil {
			continue
		}
		s := -1
		switch t {
		case offer:
			s = 2
		case major + "/*":
			s = 1
		case "*/*":
			s = 0
		}
		if s <= specific {
			continue
		}
		specific, q = s, 1
		if v, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(v, 64); err != nil || q < 0 || q > 1 {
				q = 0
			}
		}
	}
	return q
}
