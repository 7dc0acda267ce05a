package script

import (
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"math/big"
)

// cryptoRequest is what crypto.js asks. Keys are PKCS #8 when private, and the raw point or key when public.
type cryptoRequest struct {
	Op      string `json:"op"`
	Alg     string `json:"alg"`
	Hash    string `json:"hash"`
	Format  string `json:"format"`
	Private bool   `json:"private"`
	Sig     []byte `json:"sig"`
	JWK     *jwk   `json:"jwk"`
}

// jwk is a JSON Web Key (RFC 7517, 7518 and 8037).
type jwk struct {
	Kty string `json:"kty"`
	Crv string `json:"crv"`
	X   string `json:"x,omitempty"`
	Y   string `json:"y,omitempty"`
	D   string `json:"d,omitempty"`
}

// domError is an error that the guest throws as a DOMException.
type domError struct{ name, msg string }

func (e *domError) Error() string { return e.name + ": " + e.msg }

func badKey(format string, args ...any) error {
	return &domError{"DataError", fmt.Sprintf(format, args...)}
}

func unsupported(format string, args ...any) error {
	return &domError{"NotSupportedError", fmt.Sprintf(format, args...)}
}

// doCrypto does one operation of crypto.subtle on key and data. Errors are *domError.
func doCrypto(request, key, data []byte, random io.Reader) ([]byte, error) {
	var r cryptoRequest
	if err := json.Unmarshal(request, &r); err != nil {
		return nil, &domError{"OperationError", "the request is not valid"}
	}
	switch r.Op {
	case "digest":
		h, _, err := newHash(r.Hash)
		if err != nil {
			return nil, err
		}
		sum := h()
		sum.Write(key) // the data comes first when there is no key
		return sum.Sum(nil), nil
	case "sign":
		return sign(r, key, data, random)
	case "verify":
		ok, err := verify(r, key, data)
		if err != nil {
			return nil, err
		}
		if ok {
			return []byte{1}, nil
		}
		return []byte{0}, nil
	case "generate":
		return generate(r, random)
	case "public":
		return publicOf(r, key)
	case "import":
		return importKey(r, key)
	case "export":
		return exportKey(r, key)
	}
	return nil, unsupported("the operation %q is not supported", r.Op)
}

func newHash(name string) (func() hash.Hash, crypto.Hash, error) {
	switch name {
	case "SHA-1":
		return sha1.New, crypto.SHA1, nil
	case "SHA-256":
		return sha256.New, crypto.SHA256, nil
	case "SHA-384":
		return sha512.New384, crypto.SHA384, nil
	case "SHA-512":
		return sha512.New, crypto.SHA512, nil
	}
	return nil, 0, unsupported("the hash %q is not supported", name)
}

const pointSize = 32 // of a coordinate of P-256, and of a scalar

func sign(r cryptoRequest, key, data []byte, random io.Reader) ([]byte, error) {
	switch r.Alg {
	case "HMAC":
		h, _, err := newHash(r.Hash)
		if err != nil {
			return nil, err
		}
		m := hmac.New(h, key)
		m.Write(data)
		return m.Sum(nil), nil
	case "ECDSA":
		k, err := ecdsaPrivate(key)
		if err != nil {
			return nil, err
		}
		h, _, err := newHash(r.Hash)
		if err != nil {
			return nil, err
		}
		sum := h()
		sum.Write(data)
		x, y, err := ecdsa.Sign(random, k, sum.Sum(nil))
		if err != nil {
			return nil, &domError{"OperationError", "signing failed"}
		}
		out := make([]byte, 2*pointSize) // IEEE P1363, as Web Crypto wants it
		x.FillBytes(out[:pointSize])
		y.FillBytes(out[pointSize:])
		return out, nil
	case "Ed25519":
		k, err := edPrivate(key)
		if err != nil {
			return nil, err
		}
		return ed25519.Sign(k, data), nil
	}
	return nil, unsupported("signing with %q is not supported", r.Alg)
}

func verify(r cryptoRequest, key, data []byte) (bool, error) {
	switch r.Alg {
	case "HMAC":
		want, err := sign(r, key, data, nil)
		return err == nil && hmac.Equal(want, r.Sig), err
	case "ECDSA":
		k, err := ecdsaPublic(key)
		if err != nil {
			return false, err
		}
		h, _, err := newHash(r.Hash)
		if err != nil || len(r.Sig) != 2*pointSize {
			return false, err
		}
		sum := h()
		sum.Write(data)
		x, y := new(big.Int).SetBytes(r.Sig[:pointSize]), new(big.Int).SetBytes(r.Sig[pointSize:])
		return ecdsa.Verify(k, sum.Sum(nil), x, y), nil
	case "Ed25519":
		return len(key) == ed25519.PublicKeySize && len(r.Sig) == ed25519.SignatureSize && ed25519.Verify(key, data, r.Sig), nil
	}
	return false, unsupported("verifying with %q is not supported", r.Alg)
}

func generate(r cryptoRequest, random io.Reader) ([]byte, error) {
	var k any
	var err error
	switch r.Alg {
	case "ECDSA":
		k, err = ecdsa.GenerateKey(elliptic.P256(), random)
	case "Ed25519":
		_, k, err = ed25519.GenerateKey(random)
	default:
		return nil, unsupported("a key for %q is not supported", r.Alg)
	}
	if err != nil {
		return nil, &domError{"OperationError", "no key could be made"}
	}
	return pkcs8(k)
}

func pkcs8(k any) ([]byte, error) {
	b, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, badKey("the key is not valid")
	}
	return b, nil
}

func ecdsaPrivate(b []byte) (*ecdsa.PrivateKey, error) {
	k, err := x509.ParsePKCS8PrivateKey(b)
	e, ok := k.(*ecdsa.PrivateKey)
	if err != nil || !ok || e.Curve != elliptic.P256() {
		return nil, badKey("this is not a private key for P-256 in PKCS #8")
	}
	return e, nil
}

func edPrivate(b []byte) (ed25519.PrivateKey, error) {
	k, err := x509.ParsePKCS8PrivateKey(b)
	e, ok := k.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, badKey("this is not a private key for Ed25519 in PKCS #8")
	}
	return e, nil
}

func ecdsaPublic(b []byte) (*ecdsa.PublicKey, error) {
	k, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), b)
	if err != nil {
		return nil, badKey("this is not an uncompressed point of P-256")
	}
	return k, nil
}

func publicOf(r cryptoRequest, key []byte) ([]byte, error) {
	if r.Alg == "Ed25519" {
		k, err := edPrivate(key)
		if err != nil {
			return nil, err
		}
		return k.Public().(ed25519.PublicKey), nil
	}
	k, err := ecdsaPrivate(key)
	if err != nil {
		return nil, err
	}
	return pointOf(&k.PublicKey)
}

func pointOf(k *ecdsa.PublicKey) ([]byte, error) {
	b, err := k.Bytes()
	if err != nil {
		return nil, badKey("the key is not valid")
	}
	return b, nil
}

func importKey(r cryptoRequest, b []byte) ([]byte, error) {
	switch r.Format {
	case "raw":
		if r.Alg == "Ed25519" && len(b) != ed25519.PublicKeySize {
			return nil, badKey("a raw key for Ed25519 has %d bytes, not %d", ed25519.PublicKeySize, len(b))
		}
		if r.Alg == "ECDSA" {
			if _, err := ecdsaPublic(b); err != nil {
				return nil, err
			}
		}
		return b, nil
	case "spki":
		k, err := x509.ParsePKIXPublicKey(b)
		if err != nil {
			return nil, badKey("this is not a public key in SPKI")
		}
		switch k := k.(type) {
		case *ecdsa.PublicKey:
			if r.Alg == "ECDSA" && k.Curve == elliptic.P256() {
				return pointOf(k)
			}
		case ed25519.PublicKey:
			if r.Alg == "Ed25519" {
				return k, nil
			}
		}
		return nil, badKey("the key in SPKI is not for %s", r.Alg)
	case "pkcs8":
		var err error
		if r.Alg == "Ed25519" {
			_, err = edPrivate(b)
		} else {
			_, err = ecdsaPrivate(b)
		}
		return b, err
	case "jwk":
		if r.JWK != nil {
			return importJWK(r.Alg, *r.JWK)
		}
	}
	return nil, unsupported("the key format %q is not supported", r.Format)
}

func importJWK(alg string, k jwk) ([]byte, error) {
	field := func(s string) []byte {
		b, err := base64.RawURLEncoding.DecodeString(s)
		if err != nil || len(b) != pointSize {
			return nil
		}
		return b
	}
	x, y, d := field(k.X), field(k.Y), field(k.D)
	switch {
	case alg == "Ed25519" && k.Kty == "OKP" && k.Crv == "Ed25519" && x != nil:
		if k.D == "" {
			return x, nil
		}
		if d != nil {
			return pkcs8(ed25519.NewKeyFromSeed(d))
		}
	case alg == "ECDSA" && k.Kty == "EC" && k.Crv == "P-256" && x != nil && y != nil:
		point := append(append([]byte{4}, x...), y...)
		public, err := ecdsaPublic(point)
		if err != nil {
			return nil, err
		}
		if k.D == "" {
			return point, nil
		}
		if private, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), d); err == nil && private.PublicKey.Equal(public) {
			return pkcs8(private)
		}
	}
	return nil, badKey("this is not a key for %s as JSON", alg)
}

func exportKey(r cryptoRequest, b []byte) ([]byte, error) {
	switch {
	case r.Format == "pkcs8" && r.Private:
		return b, nil
	case r.Format == "raw" && !r.Private:
		return b, nil
	case r.Format == "spki" && !r.Private:
		var k any = ed25519.PublicKey(b)
		if r.Alg == "ECDSA" {
			p, err := ecdsaPublic(b)
			if err != nil {
				return nil, err
			}
			k = p
		}
		return x509.MarshalPKIXPublicKey(k)
	case r.Format == "jwk":
		return exportJWK(r, b)
	}
	return nil, &domError{"InvalidAccessError", fmt.Sprintf("this key cannot be exported as %q", r.Format)}
}

func exportJWK(r cryptoRequest, b []byte) ([]byte, error) {
	text := base64.RawURLEncoding.EncodeToString
	public := b
	var d []byte
	if r.Private {
		var err error
		if public, err = publicOf(r, b); err != nil {
			return nil, err
		}
		if r.Alg == "Ed25519" {
			k, _ := edPrivate(b)
			d = k.Seed()
		} else {
			k, _ := ecdsaPrivate(b)
			if d, err = k.Bytes(); err != nil {
				return nil, badKey("the key is not valid")
			}
		}
	}
	if r.Alg == "Ed25519" {
		return json.Marshal(jwk{Kty: "OKP", Crv: "Ed25519", X: text(public), D: text(d)})
	}
	if _, err := ecdh.P256().NewPublicKey(public); err != nil {
		return nil, badKey("the key is not valid")
	}
	return json.Marshal(jwk{Kty: "EC", Crv: "P-256", X: text(public[1 : 1+pointSize]), Y: text(public[1+pointSize:]), D: text(d)})
}
