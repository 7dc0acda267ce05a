package kek

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// arnRE is the ARN of a key or an alias of AWS KMS: partition, region, account, resource.
var arnRE = regexp.MustCompile(`^arn:(aws[a-z-]*):kms:([a-z0-9-]+):([0-9]{12}):((?:key|alias)/[A-Za-z0-9/_-]+)$`)

// awsKey is a key in AWS KMS (https://docs.aws.amazon.com/kms/latest/APIReference/API_Encrypt.html).
type awsKey struct {
	arn, region, endpoint string
	id, secret, session   string
	client                *http.Client
	now                   func() time.Time
}

func (o *Opener) openAWS(source string) (*Key, error) {
	arn := strings.TrimPrefix(source, "aws-kms://")
	parts := arnRE.FindStringSubmatch(arn)
	if parts == nil {
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: "vault key: " + cut(source) + " does not name a key of AWS KMS",
			Hint: "write aws-kms://arn:aws:kms:REGION:ACCOUNT:key/ID",
		}
	}
	k := &awsKey{
		arn: arn, region: parts[2], now: o.Now,
		id: o.env("AWS_ACCESS_KEY_ID"), secret: o.env("AWS_SECRET_ACCESS_KEY"), session: o.env("AWS_SESSION_TOKEN"),
	}
	if k.now == nil {
		k.now = time.Now
	}
	if k.id == "" || k.secret == "" {
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: "vault key: " + source + " needs credentials",
			Hint: "put them in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if they are for a while, AWS_SESSION_TOKEN",
		}
	}
	domain := "amazonaws.com"
	if parts[1] == "aws-cn" {
		domain = "amazonaws.com.cn"
	}
	k.endpoint = "https://kms." + k.region + "." + domain
	for _, name := range []string{"AWS_ENDPOINT_URL_KMS", "AWS_ENDPOINT_URL"} {
		if e := o.env(name); e != "" {
			k.endpoint = strings.TrimRight(e, "/")
			break
		}
	}
	if u, err := url.Parse(k.endpoint); err != nil || u.Host == "" || u.Path != "" {
		return nil, agent.Errorf(agent.Invalid, "vault key: AWS_ENDPOINT_URL_KMS or AWS_ENDPOINT_URL is not an address")
	}
	var err error
	if k.client, err = o.client(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(arn))
	return &Key{ID: "aws-kms-" + hex.EncodeToString(sum[:8]), Source: source, aead: k}, nil
}

func (k *awsKey) EncryptWithContext(ctx context.Context, text, _ []byte) ([]byte, error) {
	var out struct{ CiphertextBlob []byte }
	err := k.do(ctx, "Encrypt", map[string]any{"KeyId": k.arn, "Plaintext": text}, &out)
	return out.CiphertextBlob, err
}

func (k *awsKey) DecryptWithContext(ctx context.Context, sealed, _ []byte) ([]byte, error) {
	var out struct{ Plaintext []byte }
	err := k.do(ctx, "Decrypt", map[string]any{"KeyId": k.arn, "CiphertextBlob": sealed}, &out)
	return out.Plaintext, err
}

func (k *awsKey) do(ctx context.Context, action string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	defer clear(body)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.endpoint+"/", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("X-Amz-Target", "TrentService."+action)
	k.sign(req, body)
	status, answer, err := send(k.client, req)
	if err != nil {
		return err
	}
	defer clear(answer)
	if status == http.StatusOK {
		if json.Unmarshal(answer, out) != nil {
			return agent.Errorf(agent.Unavailable, "vault key: %s answered with something else than JSON", req.URL.Host)
		}
		return nil
	}
	var why struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
	}
	_ = json.Unmarshal(answer, &why) // what is not the service's own error says nothing
	kind := why.Type[strings.LastIndexByte(why.Type, '#')+1:]
	switch {
	case strings.HasPrefix(kind, "InvalidCiphertext"), strings.HasPrefix(kind, "IncorrectKey"):
		return errors.New(kind)
	case strings.HasPrefix(kind, "Throttling"), strings.HasPrefix(kind, "LimitExceeded"), strings.HasPrefix(kind, "KMSInternal"), strings.HasPrefix(kind, "DependencyTimeout"):
		status = http.StatusServiceUnavailable
	case status == http.StatusBadRequest: // AccessDenied, NotFound, Disabled, UnrecognizedClient, ...
		status = http.StatusForbidden
	}
	return refused(req.URL.Host, status, kind+": "+why.Message)
}

// sign signs a request with AWS Signature Version 4. Its path is "/" and it has no query.
func (k *awsKey) sign(req *http.Request, body []byte) {
	now := k.now().UTC()
	stamp, day := now.Format("20060102T150405Z"), now.Format("20060102")
	req.Header.Set("X-Amz-Date", stamp)
	names := "content-type;host;x-amz-date;x-amz-target"
	headers := "content-type:" + req.Header.Get("Content-Type") + "\nhost:" + req.URL.Host + "\nx-amz-date:" + stamp + "\n"
	if k.session != "" {
		req.Header.Set("X-Amz-Security-Token", k.session)
		names = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target"
		headers += "x-amz-security-token:" + k.session + "\n"
	}
	headers += "x-amz-target:" + req.Header.Get("X-Amz-Target") + "\n"
	canonical := "POST\n/\n\n" + headers + "\n" + names + "\n" + hexSum(body)
	scope := day + "/" + k.region + "/kms/aws4_request"
	key := []byte("AWS4" + k.secret)
	for _, part := range []string{day, k.region, "kms", "aws4_request"} {
		key = mac(key, part)
	}
	signature := hex.EncodeToString(mac(key, "AWS4-HMAC-SHA256\n"+stamp+"\n"+scope+"\n"+hexSum([]byte(canonical))))
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+k.id+"/"+scope+", SignedHeaders="+names+", Signature="+signature)
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
