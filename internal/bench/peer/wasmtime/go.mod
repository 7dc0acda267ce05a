module github.com/skep-dev/skep/internal/bench/peer/wasmtime

go 1.26

require github.com/bytecodealliance/wasmtime-go/v44 v44.0.0
