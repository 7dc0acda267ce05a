package kektest

import (
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// KMS speaks AWS KMS's JSON protocol with a real key, and computes each request's signature anew from what arrived, as the
// description of Signature Version 4 says.
type KMS struct {
	Secret string // of the access key AKIDEXAMPLE, whose session token is "session"
	ARN    string // of its one key, in eu-central-1
	Now    time.Time
	Fail   string // type of error to answer with, when it is not empty

	key cipher.AEAD
}

// NewKMS returns one with a new key.
func NewKMS(arn, secret string, now time.Time) *KMS {
	return &KMS{Secret: secret, ARN: arn, Now: now, key: newGCM()}
}

func sum(key, text string) string {
	m := hmac.New(sha256.New, []byte(key))
	io.WriteString(m, text)
	return string(m.Sum(nil))
}

func hash(s string) string {
	b := sha256.Sum256([]byte(s))
	return hex.EncodeToString(b[:])
}

func (k *KMS) signature(r *http.Request, body, scope string, names []string) string {
	if !slices.IsSorted(names) || !slices.Contains(names, "host") || !slices.Contains(names, "x-amz-target") {
		return "headers that must be signed are not"
	}
	var headers strings.Builder
	for _, n := range names {
		v := r.Header.Get(n)
		if n == "host" {
			v = r.Host
		}
		headers.WriteString(n + ":" + strings.TrimSpace(v) + "\n")
	}
	canonical := strings.Join([]string{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, headers.String(), strings.Join(names, ";"), hash(body)}, "\n")
	text := strings.Join([]string{"AWS4-HMAC-SHA256", r.Header.Get("X-Amz-Date"), scope, hash(canonical)}, "\n")
	key := "AWS4" + k.Secret
	for part := range strings.SplitSeq(scope, "/") {
		key = sum(key, part)
	}
	return hex.EncodeToString([]byte(sum(key, text)))
}

func (k *KMS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fail := func(kind string) {
		w.WriteHeader(400)
		json.NewEncoder(w).Encode(map[string]string{"__type": "com.amazonaws.kms#" + kind, "message": "as told"})
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		fail("ValidationException")
		return
	}
	auth, _ := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
	parts := strings.SplitN(auth, ", ", 3)
	if len(parts) != 3 || r.Header.Get("X-Amz-Date") != k.Now.Format("20060102T150405Z") || r.Header.Get("X-Amz-Security-Token") != "session" {
		fail("MissingAuthenticationTokenException")
		return
	}
	scope := parts[0]
	names := strings.Split(strings.TrimPrefix(parts[1], "SignedHeaders="), ";")
	if want := k.signature(r, string(body), scope, names); parts[2] != "Signature="+want || scope != k.Now.Format("20060102")+"/eu-central-1/kms/aws4_request" {
		fail("InvalidSignatureException")
		return
	}
	var in struct {
		KeyId                     string
		Plaintext, CiphertextBlob []byte
	}
	if err := json.Unmarshal(body, &in); err != nil || in.KeyId != k.ARN || r.Header.Get("Content-Type") != "application/x-amz-json-1.1" {
		fail("ValidationException")
		return
	}
	if k.Fail != "" {
		fail(k.Fail)
		return
	}
	switch r.Header.Get("X-Amz-Target") {
	case "TrentService.Encrypt":
		json.NewEncoder(w).Encode(map[string]any{"KeyId": k.ARN, "CiphertextBlob": k.key.Seal(nil, nil, in.Plaintext, nil)})
	case "TrentService.Decrypt":
		text, err := k.key.Open(nil, nil, in.CiphertextBlob, nil)
		if err != nil {
			fail("InvalidCiphertextException")
			return
		}
		json.NewEncoder(w).Encode(map[string]any{"KeyId": k.ARN, "Plaintext": text})
	default:
		fail("UnknownOperationException")
	}
}
