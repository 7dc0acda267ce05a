package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// limitField is one limit that a person can set: a duration, or else a number of bytes or things.
type limitField struct {
	name     string
	duration *time.Duration
	number   *int64
}

// limitFields lists the fields of l by the names that the API gives them.
func limitFields(l *agent.Limits) []limitField {
	return []limitField{
		{name: "wall", duration: &l.Wall}, {name: "cpu", duration: &l.CPU}, {name: "memory", number: &l.Memory},
		{name: "table", number: &l.Table}, {name: "stack", number: &l.Stack}, {name: "input", number: &l.Input},
		{name: "output", number: &l.Output}, {name: "host_calls", number: &l.HostCalls}, {name: "log", number: &l.Log},
		{name: "events", number: &l.Events},
	}
}

// parseLimits reads NAME=VALUE pairs, such as wall=30s and memory=64MB.
func parseLimits(pairs []string) (agent.Limits, error) {
	var l agent.Limits
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		if err := setLimit(&l, name, value); err != nil {
			return agent.Limits{}, err
		}
	}
	return l, nil
}

func setLimit(l *agent.Limits, name, value string) (err error) {
	var names []string
	for _, f := range limitFields(l) {
		if names = append(names, f.name); f.name != name {
			continue
		}
		if f.duration != nil {
			if *f.duration, err = time.ParseDuration(value); err != nil {
				return usageError("--limit %s=%s: write a time such as 1.5s or 2m", name, value)
			}
			return nil
		}
		if *f.number, err = parseSize(value); err != nil {
			return usageError("--limit %s=%s: write a number, with KB or MB for bytes", name, value)
		}
		return nil
	}
	return usageError("there is no limit %q; there are %s", name, strings.Join(names, ", "))
}

// parseSize reads a number that may end in KB, MB or GB, of 1,024 each.
func parseSize(s string) (int64, error) {
	for shift, unit := range map[uint]string{10: "KB", 20: "MB", 30: "GB"} {
		if digits, ok := strings.CutSuffix(s, unit); ok {
			n, err := strconv.ParseInt(digits, 10, 32)
			return n << shift, err
		}
	}
	return strconv.ParseInt(s, 10, 64)
}

// limitsText names the limits that are set.
func limitsText(l agent.Limits) string {
	var parts []string
	for _, f := range limitFields(&l) {
		switch {
		case f.duration != nil && *f.duration != 0:
			parts = append(parts, f.name+"="+f.duration.String())
		case f.number != nil && *f.number != 0:
			parts = append(parts, fmt.Sprintf("%s=%d", f.name, *f.number))
		}
	}
	return strings.Join(parts, ", ")
}
