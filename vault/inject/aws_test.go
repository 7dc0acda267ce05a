package inject

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

// The vectors are of AWS's Signature Version 4 test suite, its page on signing, and S3's page on the Authorization header.
func TestSignatureVectors(t *testing.T) {
	suite := awsKey{KeyID: "AKIDEXAMPLE", Secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
	bucket := awsKey{KeyID: "AKIAIOSFODNN7EXAMPLE", Secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
	at := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
	s3at := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	const site, s3 = "https://example.amazonaws.com", "https://examplebucket.s3.amazonaws.com"
	for name, c := range map[string]struct {
		key             awsKey
		at              time.Time
		service, method string
		url             string
		header          [][2]string
		body            string
		signed, want    string
	}{
		"get-vanilla": {suite, at, "service", "GET", site + "/", nil, "", "host;x-amz-date",
			"5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		"post-vanilla": {suite, at, "service", "POST", site + "/", nil, "", "host;x-amz-date",
			"5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
		"get-vanilla-query-order-key-case": {suite, at, "service", "GET", site + "/?Param2=value2&Param1=value1", nil, "", "host;x-amz-date",
			"b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
		"get-vanilla-empty-query-key": {suite, at, "service", "GET", site + "/?Param1=value1", nil, "", "host;x-amz-date",
			"a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
		"the standard port": {suite, at, "service", "GET", "https://example.amazonaws.com:443/", nil, "", "host;x-amz-date",
			"5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		"iam": {suite, at, "iam", "GET", "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08",
			header("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"), "", "content-type;host;x-amz-date",
			"5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"},
		"s3 get": {bucket, s3at, "s3", "GET", s3 + "/test.txt", header("Range", "bytes=0-9"), "", "host;range;x-amz-content-sha256;x-amz-date",
			"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		"s3 put": {bucket, s3at, "s3", "PUT", s3 + "/test$file.text", header("Date", "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class", "REDUCED_REDUNDANCY"),
			"Welcome to Amazon S3.", "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
			"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
		"s3 lifecycle": {bucket, s3at, "s3", "GET", s3 + "/?lifecycle", nil, "", "host;x-amz-content-sha256;x-amz-date",
			"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		"s3 list": {bucket, s3at, "s3", "GET", s3 + "/?max-keys=2&prefix=J", nil, "", "host;x-amz-content-sha256;x-amz-date",
			"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := ask{method: c.method, url: c.url, header: c.header, body: c.body}.request(t)
			sum, err := bodySum(r, c.service)
			if c.service == "s3" && c.body != "" { // the suite signs the body
				sum = hash([]byte(c.body))
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := c.key.signAt(r, "us-east-1", c.service, sum, c.at); err != nil {
				t.Fatal(err)
			}
			want := "AWS4-HMAC-SHA256 Credential=" + c.key.KeyID + "/" + c.at.Format("20060102") + "/us-east-1/" + c.service +
				"/aws4_request, SignedHeaders=" + c.signed + ", Signature=" + c.want
			if got := r.Header.Get("Authorization"); got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		})
	}
}

func TestHostScope(t *testing.T) {
	for host, want := range map[string]string{
		"dynamodb.eu-west-1.amazonaws.com": "eu-west-1 dynamodb", "abc123.execute-api.us-east-2.amazonaws.com": "us-east-2 execute-api",
		"bucket.name.s3.eu-central-1.amazonaws.com": "eu-central-1 s3", "s3.amazonaws.com": "us-east-1 s3", "bucket.s3.amazonaws.com": "us-east-1 s3",
		"b.s3.dualstack.us-west-2.amazonaws.com": "us-west-2 s3", "s3-fips.us-gov-west-1.amazonaws.com": "us-gov-west-1 s3", "iam.amazonaws.com": "us-east-1 iam",
		"sts.ap-south-1.amazonaws.com": "ap-south-1 sts", "bedrock-runtime.us-east-1.amazonaws.com": "us-east-1 bedrock", "email.us-east-1.amazonaws.com": "us-east-1 ses",
		"x.lambda-url.eu-west-1.on.aws": "eu-west-1 lambda", "s3.cn-north-1.amazonaws.com.cn": "cn-north-1 s3", "api.ecr.eu-west-1.amazonaws.com": "eu-west-1 ecr",
		"kms-fips.us-east-1.amazonaws.com": "us-east-1 kms", "example.com": " ", "amazonaws.com": " ", "evil-amazonaws.com": " ", "x.amazonaws.com": " ",
	} {
		if region, service := hostScope(host); region+" "+service != want {
			t.Errorf("%s: %q %q, want %q", host, region, service, want)
		}
	}
}

func TestAWSBodies(t *testing.T) {
	v := vaultMap{}
	v.put(t, "aws", agent.SecretAWS, `{"access_key_id":"AKID","secret_access_key":"wJalrXUtnFEMI","session_token":"FwoGZXIvYXdz"}`, "https://*.amazonaws.com header:authorization")
	big := strings.Repeat("x", maxSigned)
	for name, c := range map[string]struct {
		host, body string
		length     int64
		sum        string // of x-amz-content-sha256; "" means none
		bad        string
	}{
		"s3, whole":           {"s3.eu-west-1", "hello", 0, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", ""},
		"s3, a stream":        {"s3.eu-west-1", "hello", -1, unsigned, ""},
		"s3, none":            {"s3.eu-west-1", "", 0, hash(nil), ""},
		"s3, long":            {"s3.eu-west-1", big + "x", 0, unsigned, ""},
		"other, whole":        {"sqs.eu-west-1", "hello", 0, "", ""},
		"other, a stream":     {"sqs.eu-west-1", "hello", -1, "", ""},
		"other, long":         {"sqs.eu-west-1", big, 0, "", ""},
		"other, too long":     {"sqs.eu-west-1", big + "x", 0, "", "more than 8 MiB"},
		"other, long stream":  {"sqs.eu-west-1", big + "x", -1, "", "more than 8 MiB"},
		"other, placeholders": {"sqs.eu-west-1", "{{secret:aws}}", -1, "", "length is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			r, target := ask{
				url: "https://" + c.host + ".amazonaws.com/b/k", body: c.body, length: c.length,
				header: header("authorization", "{{secret:aws}}", "x-amz-security-token", "guest's", "X-Amz-Content-Sha256", "guest's", "x-amz-date", "guest's"),
			}.request(t)
			_, err := New(v, nil).Sign(context.Background(), new(user).use(), r, target)
			if c.bad != "" {
				wantError(t, err, agent.Invalid, c.bad)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := dump(r)
			if err != nil || !strings.HasSuffix(got, c.body) || strings.Contains(got, "guest's") || strings.Contains(got, "wJalr") || !canonical(r.Header) {
				t.Errorf("sent %.500q, %v", got, err)
			}
			for name, want := range map[string]string{"X-Amz-Content-Sha256": c.sum, "X-Amz-Security-Token": "FwoGZXIvYXdz"} {
				if got := r.Header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=AKID/") {
				t.Errorf("authorization: %q", r.Header.Get("Authorization"))
			}
		})
	}
}

func TestAWSQueryThatCannotBeRead(t *testing.T) {
	r, _ := ask{url: "https://sqs.eu-west-1.amazonaws.com/?a=%zz"}.request(t)
	wantError(t, (&awsKey{KeyID: "a", Secret: "b"}).sign(r), agent.Invalid, "percent-encoded")
}

// canonical reports whether every name is in the form that http.Header.Get finds: another would be sent beside it.
func canonical(h http.Header) bool {
	for name := range h {
		if name != http.CanonicalHeaderKey(name) {
			return false
		}
	}
	return true
}
