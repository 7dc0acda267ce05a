// What an instance keeps: ordered keys, and SQL.
import { BigIntOf, Bytes, RangeErrorClass, StringOf, TypeErrorClass, defineProperty, freeze, fromBase64, isArray, isBuffer, isSafeInteger, isView, join, record, stringify, then, toBase64, toWellFormed, viewBytes } from "./primordials.js";
import { call } from "./durable.js";
import { host } from "./host.js";
import { keyed } from "./kv.js";

const keys = keyed("storage", (id, which, body) => host.call(id, "storage." + which, body));

// paramText writes a value of SQLite as package abi's SQLValue.
function paramText(v, i) {
  switch (typeof v) {
    case "string": return `{"text":${stringify(toWellFormed(v))}}`;
    case "boolean": return v ? '{"int":"1"}' : '{"int":"0"}';
    case "bigint":
      if (v < -(2n ** 63n) || v >= 2n ** 63n) throw new RangeErrorClass(`sql: parameter ${i + 1} does not fit into 64 bits`);
      return `{"int":"${StringOf(v)}"}`;
    case "number":
      if (v - v !== 0) throw new TypeErrorClass(`sql: parameter ${i + 1} is ${v}, which no column can hold`);
      return isSafeInteger(v) ? `{"int":"${v + 0}"}` : `{"real":${v}}`;
  }
  if (v === null) return "{}";
  if (isBuffer(v) || isView(v)) return `{"bytes":"${toBase64(viewBytes(v))}"}`;
  throw new TypeErrorClass(`sql: parameter ${i + 1} is ${v === undefined ? "undefined" : "an object"}: a value is null, a number, a bigint, a string, a boolean or bytes`);
}

// valueOf reads an SQLValue. An integer that a number cannot hold exactly is a bigint.
function valueOf(v) {
  if (v === null) return null;
  if (v.int !== undefined) {
    const n = +v.int;
    return isSafeInteger(n) ? n : BigIntOf(v.int);
  }
  if (v.real !== undefined) return v.real;
  if (v.text !== undefined) return v.text;
  if (v.bytes !== undefined) return v.bytes === null ? new Bytes() : fromBase64(v.bytes);
  return null;
}

// queryText writes package abi's SQL, of a tagged template or of a text and parameters.
function queryText(query, params) {
  if (isArray(query) && isArray(query.raw)) query = join(query, "?");
  if (typeof query !== "string") throw new TypeErrorClass("sql: a statement is a text, or a template such as sql`SELECT * FROM notes WHERE id = ${id}`");
  let list = "";
  for (let i = 0; i < params.length; i++) list += (i > 0 ? "," : "") + paramText(params[i], i);
  return `{"query":${stringify(toWellFormed(query))}${list === "" ? "" : `,"params":[${list}]`}}`;
}

function rowOf(columns, values) {
  const row = {};
  for (let i = 0; i < columns.length; i++) {
    if (columns[i] === "__proto__") defineProperty(row, columns[i], record({ value: valueOf(values[i]), writable: true, enumerable: true, configurable: true }));
    else row[columns[i]] = valueOf(values[i]);
  }
  return row;
}

// sql runs a statement and returns a promise of its rows as objects.
export function sql(query, ...params) {
  return then(call("sql", "storage.sql", () => queryText(query, params)), (out) => {
    const rows = [];
    for (let i = 0; i < out.rows?.length; i++) rows[i] = rowOf(out.columns, out.rows[i]);
    return rows;
  });
}

// raw returns a promise of { columns, rows, changes }, where a row is an array.
sql.raw = function raw(query, ...params) {
  return then(call("sql", "storage.sql", () => queryText(query, params)), (out) => {
    const rows = [];
    for (let i = 0; i < out.rows?.length; i++) {
      rows[i] = [];
      for (let k = 0; k < out.columns.length; k++) rows[i][k] = valueOf(out.rows[i][k]);
    }
    return { columns: out.columns ?? [], rows, changes: out.changes };
  });
};
freeze(sql);

keys.sql = sql;
export const storage = freeze(keys);
