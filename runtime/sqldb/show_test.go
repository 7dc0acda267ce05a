package sqldb_test

import (
	"fmt"
	"strconv"

	"github.com/skep-dev/skep/abi"
)

// show writes a value as a literal of SQL.
func show(v abi.SQLValue) string {
	switch {
	case v.Int != nil:
		return strconv.FormatInt(*v.Int, 10)
	case v.Real != nil:
		return strconv.FormatFloat(*v.Real, 'g', -1, 64)
	case v.Text != nil:
		return "'" + *v.Text + "'"
	case v.Bytes != nil:
		return fmt.Sprintf("x'%x'", *v.Bytes)
	}
	return "NULL"
}
