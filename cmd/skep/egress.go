package main

import (
	"crypto/x509"
	"log/slog"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
)

// egressOptions are the flags about agents' outbound requests.
type egressOptions struct {
	allow []string // prefixes
	ca    string   // file
}

func (o *egressOptions) register(flags *pflag.FlagSet) {
	var allow []string
	if env := os.Getenv("SKEP_EGRESS_ALLOW"); env != "" {
		allow = strings.Split(env, ",")
	}
	flags.StringSliceVar(&o.allow, "egress-allow", allow, "`PREFIX` of addresses that are not public and that agents may reach all the same, where they are granted the host: 10.0.0.0/8, 127.0.0.1 (SKEP_EGRESS_ALLOW)")
	flags.StringVar(&o.ca, "egress-ca", os.Getenv("SKEP_EGRESS_CA"), "`FILE` of certificates in PEM that agents' requests trust beside the system's (SKEP_EGRESS_CA)")
}

// open returns the way out.
func (o *egressOptions) open(log *slog.Logger) (*egress.Egress, error) {
	opts, err := o.options(log)
	if err != nil {
		return nil, err
	}
	return egress.New(&opts), nil
}

// options are those of a way out as the flags say.
func (o *egressOptions) options(log *slog.Logger) (egress.Options, error) {
	opts := egress.Options{Log: log}
	for _, text := range o.allow {
		p, err := netip.ParsePrefix(text)
		if addr, single := netip.ParseAddr(text); single == nil {
			p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil || p != p.Masked() {
			return opts, usageError("--egress-allow %s: write a prefix, such as 10.0.0.0/8, or an address", text)
		}
		opts.Allow = append(opts.Allow, p)
	}
	if o.ca != "" {
		pem, err := os.ReadFile(o.ca)
		if err != nil {
			return opts, &agent.Error{Kind: agent.Invalid, Msg: "--egress-ca cannot be read", Err: err}
		}
		if opts.RootCAs, err = x509.SystemCertPool(); err != nil {
			opts.RootCAs = x509.NewCertPool()
		}
		if !opts.RootCAs.AppendCertsFromPEM(pem) {
			return opts, usageError("--egress-ca %s: there is no certificate in it", o.ca)
		}
	}
	return opts, nil
}
