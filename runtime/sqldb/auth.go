package sqldb

import (
	"fmt"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// pragmas are those that statements may use; those marked true take a value. Others reach outside of the database or change what it
// promises.
var pragmas = map[string]bool{
	"foreign_keys": true, "defer_foreign_keys": true, "user_version": true, "application_id": true,
	"table_info": true, "table_xinfo": true, "table_list": true, "index_list": true, "index_info": true, "index_xinfo": true,
	"foreign_key_list": true, "foreign_key_check": true, "integrity_check": true, "quick_check": true, "optimize": true,
	"collation_list": false, "function_list": false, "pragma_list": false, "compile_options": false, "schema_version": false,
	"page_count": false, "page_size": false, "freelist_count": false, "encoding": false, "data_version": false, "max_page_count": false,
}

// functions are those that statements may use: SQLite's own but for a few whose time grows with the square of a text's length and that
// nobody can stop meanwhile (json_patch), and what the library brings besides (eval, decimal_mul).
var functions = words(`abs changes char coalesce concat concat_ws format glob hex if ifnull iif instr last_insert_rowid length like likelihood
	likely lower ltrim max min nullif octet_length printf quote random randomblob replace round rtrim sign soundex sqlite_version
	sqlite_source_id substr substring total_changes trim typeof unhex unicode unistr unistr_quote unlikely upper zeroblob base64 regexp
	subtype
	avg count group_concat string_agg sum total row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value
	date time datetime julianday unixepoch strftime timediff current_date current_time current_timestamp
	acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2 mod pi pow power radians sin sinh sqrt
	tan tanh trunc
	json jsonb json_array jsonb_array json_array_length json_error_position json_extract jsonb_extract json_insert jsonb_insert
	json_array_insert jsonb_array_insert json_object jsonb_object json_pretty json_quote json_remove jsonb_remove json_replace jsonb_replace
	json_set jsonb_set json_type json_valid json_group_array jsonb_group_array json_group_object jsonb_group_object -> ->>
	match bm25 highlight snippet fts5_get_locale fts5_locale fts5_insttoken`)

// modules are the virtual tables that statements may make.
var modules = words("fts5 fts5vocab")

func words(list string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(list) {
		m[w] = true
	}
	return m
}

// authorize says whether a part of a statement is allowed. The library asks when it prepares one.
func (c *conn) authorize(action sqlite3.AuthorizerActionCode, third, fourth, _, _ string) sqlite3.AuthorizerReturnCode {
	if c.opening {
		return sqlite3.AUTH_OK
	}
	if why := c.refuse(action, third, fourth); why != "" {
		c.refused = why
		return sqlite3.AUTH_DENY
	}
	return sqlite3.AUTH_OK
}

func (c *conn) refuse(action sqlite3.AuthorizerActionCode, third, fourth string) string {
	switch action {
	case sqlite3.AUTH_ATTACH, sqlite3.AUTH_DETACH:
		// VACUUM builds the new database in one that it attaches, without a name, while it runs.
		if c.stepping && (action == sqlite3.AUTH_DETACH || third == "") {
			return ""
		}
		return "an instance has one database: ATTACH, DETACH and VACUUM INTO are not allowed"
	case sqlite3.AUTH_CREATE_TEMP_TABLE, sqlite3.AUTH_CREATE_TEMP_INDEX, sqlite3.AUTH_CREATE_TEMP_VIEW, sqlite3.AUTH_CREATE_TEMP_TRIGGER:
		return "temporary tables, views and triggers are not allowed, as they would be gone or not in the next turn: use WITH, or a table"
	case sqlite3.AUTH_CREATE_VTABLE:
		if !modules[strings.ToLower(fourth)] {
			return fmt.Sprintf("virtual tables of %.40q are not allowed: fts5 is", fourth)
		}
	case sqlite3.AUTH_FUNCTION:
		name := strings.ToLower(fourth)
		if !functions[name] && !strings.HasPrefix(name, "sqlite_") {
			return fmt.Sprintf("the function %.40s is not available", name)
		}
	case sqlite3.AUTH_PRAGMA:
		name := strings.ToLower(third)
		takes, ok := pragmas[name]
		if !ok || fourth != "" && !takes {
			return fmt.Sprintf("PRAGMA %.40s is not allowed", name)
		}
		if name == "foreign_keys" && fourth != "" {
			c.pragmas = true
		}
	}
	return ""
}
