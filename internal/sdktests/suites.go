//go:build sdktests

package main

// The SDKs are named here, so that go.mod keeps them.
import (
	_ "github.com/anthropics/anthropic-sdk-go/v2"
	_ "github.com/openai/openai-go/v3"
)
