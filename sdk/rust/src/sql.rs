use crate::calls::ask;
use crate::{base64, object, Error, Result, Value};

/// A value of SQLite.
#[derive(Clone, Debug, PartialEq)]
pub enum SqlValue {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

/// Runs a statement of SQLite on the instance's own data, which is part of the turn as [`storage`](crate::storage) is. Several
/// statements without parameters may be separated by semicolons. Parameters stand as `?` in it.
///
/// ```no_run
/// # use skep::Result;
/// # fn f(id: i64) -> Result<()> {
/// for row in skep::sql("SELECT name, age FROM people WHERE id < ?", &[id.into()])?.rows {
///     let name: String = row.get("name")?;
///     let age: Option<i64> = row.get("age")?;
/// }
/// # Ok(()) }
/// ```
pub fn sql(query: &str, params: &[SqlValue]) -> Result<Rows> {
    let params: Vec<Value> = params.iter().map(SqlValue::write).collect();
    let got = ask("storage.sql", &object! { "query": query, "params": params })?;
    let texts = got["columns"].as_array().unwrap_or(&[]).iter().map(|c| c.as_str().unwrap_or("").to_string());
    let columns: std::rc::Rc<[String]> = texts.collect::<Vec<_>>().into();
    let row = |r: &Value| {
        let values: Result<Vec<SqlValue>> = r.as_array().unwrap_or(&[]).iter().map(SqlValue::read).collect();
        Ok(Row { columns: columns.clone(), values: values? })
    };
    let rows: Result<Vec<Row>> = got["rows"].as_array().unwrap_or(&[]).iter().map(row).collect();
    Ok(Rows { columns: columns.to_vec(), rows: rows?, changes: got["changes"].as_i64().unwrap_or(0) })
}

/// What a statement returned, up to 10,000 rows and 8 MiB.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    pub columns: Vec<String>,
    pub rows: Vec<Row>,
    /// Rows that were inserted, changed or deleted.
    pub changes: i64,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    columns: std::rc::Rc<[String]>,
    /// In the order of the columns.
    pub values: Vec<SqlValue>,
}

impl Row {
    /// Returns the value of a column. An `Option` is `None` for null.
    pub fn get<T: FromSql>(&self, column: &str) -> Result<T> {
        let at = self.columns.iter().position(|c| c.eq_ignore_ascii_case(column));
        let v = at.and_then(|i| self.values.get(i)).ok_or_else(|| Error::new(format!("sql: there is no column {:?}", column)))?;
        let wrong = || format!("sql: column {:?}: {} does not fit into a {}", column, v.kind(), std::any::type_name::<T>());
        T::from_sql(v).ok_or_else(|| Error::new(wrong()))
    }
}

impl SqlValue {
    fn kind(&self) -> &'static str {
        match self {
            SqlValue::Null => "null",
            SqlValue::Int(_) => "an integer",
            SqlValue::Real(_) => "a number",
            SqlValue::Text(_) => "a text",
            SqlValue::Bytes(_) => "a value of bytes",
        }
    }

    pub(crate) fn write(&self) -> Value {
        match self {
            SqlValue::Null => object! {},
            SqlValue::Int(n) => object! { "int": n.to_string() }, // which JSON carries exactly
            SqlValue::Real(f) => object! { "real": *f },
            SqlValue::Text(s) => object! { "text": s.as_str() },
            SqlValue::Bytes(b) => object! { "bytes": base64::encode(b) },
        }
    }

    pub(crate) fn read(v: &Value) -> Result<SqlValue> {
        let broken = || Error::of("internal", "the host's value of SQLite cannot be read");
        if let Some(n) = v["int"].as_str() {
            return n.parse().map(SqlValue::Int).map_err(|_| broken());
        }
        if let Some(f) = v["real"].as_f64() {
            return Ok(SqlValue::Real(f));
        }
        if let Some(s) = v["text"].as_str() {
            return Ok(SqlValue::Text(s.to_string()));
        }
        match v["bytes"].as_str() {
            Some(b) => base64::decode(b).map(SqlValue::Bytes).ok_or_else(broken),
            None => Ok(SqlValue::Null),
        }
    }
}

/// What a value of SQLite can become.
pub trait FromSql: Sized {
    fn from_sql(v: &SqlValue) -> Option<Self>;
}

macro_rules! from_sql {
    ($($t:ty: $pattern:pat => $value:expr;)*) => { $(
        impl FromSql for $t {
            fn from_sql(v: &SqlValue) -> Option<Self> {
                match v {
                    $pattern => $value,
                    _ => None,
                }
            }
        }
    )* };
}

from_sql! {
    i64: SqlValue::Int(n) => Some(*n);
    i32: SqlValue::Int(n) => i32::try_from(*n).ok();
    u32: SqlValue::Int(n) => u32::try_from(*n).ok();
    u64: SqlValue::Int(n) => u64::try_from(*n).ok();
    bool: SqlValue::Int(n) => Some(*n != 0);
    String: SqlValue::Text(s) => Some(s.clone());
    Vec<u8>: SqlValue::Bytes(b) => Some(b.clone());
}

impl FromSql for f64 {
    fn from_sql(v: &SqlValue) -> Option<f64> {
        match v {
            SqlValue::Real(f) => Some(*f),
            SqlValue::Int(n) => Some(*n as f64),
            _ => None,
        }
    }
}

impl FromSql for SqlValue {
    fn from_sql(v: &SqlValue) -> Option<SqlValue> {
        Some(v.clone())
    }
}

impl<T: FromSql> FromSql for Option<T> {
    fn from_sql(v: &SqlValue) -> Option<Option<T>> {
        match v {
            SqlValue::Null => Some(None),
            v => T::from_sql(v).map(Some),
        }
    }
}

macro_rules! to_sql {
    ($($t:ty: $v:ident => $value:expr;)*) => { $(impl From<$t> for SqlValue { fn from($v: $t) -> SqlValue { $value } })* };
}

to_sql! {
    i64: n => SqlValue::Int(n);
    i32: n => SqlValue::Int(i64::from(n));
    u32: n => SqlValue::Int(i64::from(n));
    bool: b => SqlValue::Int(i64::from(b));
    f64: f => SqlValue::Real(f);
    &str: s => SqlValue::Text(s.to_string());
    String: s => SqlValue::Text(s);
    &[u8]: b => SqlValue::Bytes(b.to_vec());
    Vec<u8>: b => SqlValue::Bytes(b);
}

impl<T: Into<SqlValue>> From<Option<T>> for SqlValue {
    fn from(v: Option<T>) -> SqlValue {
        v.map_or(SqlValue::Null, Into::into)
    }
}
