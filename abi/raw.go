package abi

import "encoding/json"

// Raw is a JSON value carried as it is.
type Raw = json.RawMessage
