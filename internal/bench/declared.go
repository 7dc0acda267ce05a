//go:build linux

package main

import (
	"context"
	"fmt"

	"github.com/tiktoken-go/tokenizer"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/tools/code"
	"github.com/skep-dev/skep/tools/code/codetest"
)

// declared is figure P13: what the declarations of 182 tools of 13 real servers cost a model, in tokens of o200k, beside the same tools as models
// are given them without code mode. Nothing in it depends on the machine.
func declared(context.Context, *bench) ([]Figure, error) {
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	tools, err := codetest.Tools()
	if err != nil {
		return nil, err
	}
	native, err := codetest.Native()
	if err != nil {
		return nil, err
	}
	names := code.NewNames(tools)
	list, err := code.List(tools, names, abi.ToolQuery{})
	if err != nil {
		return nil, err
	}
	theirs, err := codec.Count(string(native))
	if err != nil {
		return nil, fmt.Errorf("count tokens: %w", err)
	}
	var figures []Figure
	for _, form := range []struct {
		name, text string
		target     Target
	}{
		{"declarations, compact, tokens", code.Declare(tools, names, code.LevelCompact), Target{Bound: 16_600, Value: true}},
		{"index for search, tokens", code.Index(list), Target{Bound: 2_400, Value: true}},
		{"declarations, signatures, tokens", code.Declare(tools, names, code.LevelSignatures), Target{}},
		{"declarations, names, tokens", code.Declare(tools, names, code.LevelNames), Target{}},
		{"declarations, full, tokens", code.Declare(tools, names, code.LevelFull), Target{}},
	} {
		ours, err := codec.Count(form.text)
		if err != nil {
			return nil, fmt.Errorf("count tokens: %w", err)
		}
		figures = append(figures, compare("P13", form.name, NoUnit, []float64{float64(ours)}, []float64{float64(theirs)}, "native schemas", form.target))
	}
	return figures, nil
}
