package inject

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

const (
	maxSigned = 8 << 20 // bytes of a body that is read whole to be signed
	unsigned  = "UNSIGNED-PAYLOAD"
	awsTime   = "20060102T150405Z"
)

// awsKey signs requests by AWS Signature Version 4, in the Authorization header.
type awsKey struct {
	KeyID   string `json:"access_key_id"`
	Secret  string `json:"secret_access_key"`
	Session string `json:"session_token"`
	Region  string `json:"region"`
	Service string `json:"service"`
}

func (i *Injector) openAWS(app agent.App, o *opened) error {
	o.aws = &awsKey{}
	if err := decode(o, o.aws); err != nil {
		return err
	}
	k := o.aws
	if k.KeyID == "" || k.Secret == "" || !isFieldValue(k.KeyID+k.Session+k.Region+k.Service) {
		return o.broken("has no access_key_id or no secret_access_key, or a control character")
	}
	o.cleaner = i.cleaners.of(app, o, []byte(k.Secret), []byte(k.Session))
	return nil
}

// sign signs r as it is now; nothing of it but its Authorization header may change after.
func (k *awsKey) sign(r *http.Request) error {
	region, service := hostScope(r.URL.Hostname())
	if k.Region != "" {
		region = k.Region
	}
	if k.Service != "" {
		service = k.Service
	}
	if region == "" || service == "" {
		return invalid("the region and service of "+clip(r.URL.Hostname())+" are not known", `name them in the secret: {"region": "eu-west-1", "service": "execute-api", ...}`)
	}
	sum, err := bodySum(r, service)
	if err != nil {
		return err
	}
	return k.signAt(r, region, service, sum, time.Now())
}

// bodySum returns the hash of the body. It reads the body for it, unless the service takes one that is not signed.
func bodySum(r *http.Request, service string) (string, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return hash(nil), nil
	}
	if service == "s3" && r.GetBody == nil {
		return unsigned, nil
	}
	tooLong := agent.Errorf(agent.Invalid, "the body of a request that is signed for AWS has more than %d MiB", maxSigned>>20)
	if r.ContentLength > maxSigned {
		return "", tooLong
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, maxSigned+1))
	if err != nil {
		return "", agent.AsError(err)
	}
	if len(b) > maxSigned {
		return "", tooLong
	}
	if err := r.Body.Close(); err != nil {
		return "", agent.AsError(err)
	}
	setBody(r, b)
	return hash(b), nil
}

func (k *awsKey) signAt(r *http.Request, region, service, sum string, now time.Time) error {
	stamp := now.UTC().Format(awsTime)
	h := http.Header{}
	for name, values := range r.Header {
		h[http.CanonicalHeaderKey(name)] = append(h[http.CanonicalHeaderKey(name)], values...)
	}
	for _, name := range []string{"Authorization", "X-Amz-Security-Token", "X-Amz-Content-Sha256"} {
		h.Del(name)
	}
	r.Header = h
	h.Set("X-Amz-Date", stamp)
	if k.Session != "" {
		h.Set("X-Amz-Security-Token", k.Session)
	}
	if service == "s3" {
		h.Set("X-Amz-Content-Sha256", sum)
	}
	headers, names := canonicalHeaders(r)
	query, err := canonicalQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	path := escapeAWS(r.URL.EscapedPath())
	if service == "s3" {
		path = escapeAWS(r.URL.Path)
	}
	if path == "" {
		path = "/"
	}
	scope := stamp[:8] + "/" + region + "/" + service + "/aws4_request"
	request := strings.Join([]string{r.Method, path, query, headers, names, sum}, "\n")
	text := strings.Join([]string{"AWS4-HMAC-SHA256", stamp, scope, hash([]byte(request))}, "\n")

	key := []byte("AWS4" + k.Secret)
	for _, part := range []string{stamp[:8], region, service, "aws4_request"} {
		key = mac(key, part)
	}
	h.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+k.KeyID+"/"+scope+", SignedHeaders="+names+", Signature="+hex.EncodeToString(mac(key, text)))
	return nil
}

// canonicalHeaders returns the headers that are signed, and their names. A proxy may change the others.
func canonicalHeaders(r *http.Request) (lines, names string) {
	host := r.URL.Host
	if p := r.URL.Port(); p == "443" && r.URL.Scheme == "https" || p == "80" && r.URL.Scheme == "http" {
		host = strings.TrimSuffix(host, ":"+p)
		r.Host = host
	}
	signed := map[string]string{"host": host}
	for name, values := range r.Header {
		switch lower := strings.ToLower(name); {
		case lower == "content-type", lower == "content-md5", lower == "date", lower == "range", strings.HasPrefix(lower, "x-amz-"):
			var words []string
			for _, v := range values {
				words = append(words, strings.Join(strings.Fields(v), " "))
			}
			signed[lower] = strings.Join(words, ",")
		}
	}
	sorted := slices.Sorted(maps.Keys(signed))
	for _, name := range sorted {
		lines += name + ":" + signed[name] + "\n"
	}
	return lines, strings.Join(sorted, ";")
}

func canonicalQuery(raw string) (string, error) {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return "", invalid("the query of a request that is signed for AWS is not percent-encoded as it should be", "encode its names and values as encodeURIComponent does")
	}
	for _, values := range q {
		slices.Sort(values)
	}
	return strings.ReplaceAll(q.Encode(), "+", "%20"), nil
}

// escapeAWS escapes all but what RFC 3986 calls unreserved, and slashes.
func escapeAWS(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(url.QueryEscape(p), "+", "%20")
	}
	return strings.Join(parts, "/")
}

// global lists services whose one endpoint has no region in its name; they are signed for us-east-1.
var global = map[string]bool{"iam": true, "sts": true, "s3": true, "cloudfront": true, "route53": true, "organizations": true}

// signingNames lists services that are signed by another name than that of their endpoint.
var signingNames = map[string]string{
	"bedrock-runtime": "bedrock", "bedrock-agent": "bedrock", "bedrock-agent-runtime": "bedrock", "email": "ses", "api.ecr": "ecr", "runtime.sagemaker": "sagemaker",
	"models.lex": "lex", "runtime.lex": "lex", "data.iot": "iotdata", "streams.dynamodb": "dynamodb",
	"lambda-url": "lambda", "portal.sso": "awsssoportal", "api.sagemaker": "sagemaker", "data.mediastore": "mediastore",
}

// hostScope returns the region and service that the name of an AWS endpoint says, as far as it says them.
func hostScope(host string) (region, service string) {
	var rest string
	for _, suffix := range []string{".amazonaws.com", ".amazonaws.com.cn", ".api.aws", ".on.aws"} {
		if before, found := strings.CutSuffix(host, suffix); found {
			rest = before
		}
	}
	if rest == "" {
		return "", ""
	}
	labels := strings.Split(rest, ".")
	last := labels[len(labels)-1]
	if !isRegion(last) {
		if global[last] {
			return "us-east-1", last
		}
		return "", ""
	}
	labels = labels[:len(labels)-1]
	if n := len(labels); n > 1 && labels[n-1] == "dualstack" {
		labels = labels[:n-1]
	}
	if len(labels) == 0 {
		return last, ""
	}
	service = strings.TrimSuffix(labels[len(labels)-1], "-fips")
	for _, endpoint := range []string{strings.Join(labels[max(0, len(labels)-2):], "."), service} {
		if name := signingNames[endpoint]; name != "" {
			return last, name
		}
	}
	return last, service
}

// isRegion reports whether s is shaped like eu-west-1 or us-gov-east-1.
func isRegion(s string) bool {
	parts := strings.Split(s, "-")
	n, err := strconv.Atoi(parts[len(parts)-1])
	return len(parts) >= 3 && len(parts[0]) == 2 && err == nil && n > 0
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
