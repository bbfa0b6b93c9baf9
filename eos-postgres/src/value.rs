//! Values of columns.

use std::time::{Duration, SystemTime};

use eos_core::Timestamp;
use tokio_postgres::types::Type;

/// Microseconds from 1970 to 2000, where PostgreSQL's timestamps begin.
const UNTIL_2000: i64 = 946_684_800_000_000;

/// The type of a value, and of the columns that take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Any type for text, and enums.
    Text,
    /// A whole number of 16 bits.
    I16,
    /// A whole number of 32 bits.
    I32,
    /// A whole number of 64 bits.
    I64,
    /// A floating-point number.
    F64,
    /// `boolean`.
    Bool,
    /// `bytea`.
    Bytes,
    /// `uuid`.
    Uuid,
    /// `timestamptz`, with microseconds.
    Time,
    /// `json` and `jsonb`.
    Json,
    /// `numeric`.
    Numeric,
    /// Any type: the database reads the text.
    Any,
}

/// A value that a column of a table takes. `None` is NULL.
///
/// | Rust | column |
/// |---|---|
/// | `String`, `&str` | `text`, `varchar`, `char(n)`, enums |
/// | `i16`, `i32`, `i64`, `u8`, `u16`, `u32` | `smallint`, `integer`, `bigint`, `numeric`, and floats |
/// | `f32`, `f64` | `real`, `double precision`, `numeric` |
/// | `bool` | `boolean` |
/// | `Vec<u8>`, `&[u8]` | `bytea` |
/// | [`Uuid`](uuid::Uuid) | `uuid` |
/// | [`Timestamp`], `SystemTime` | `timestamptz` |
/// | [`Json`] | `jsonb`, `json` |
/// | [`Numeric`] | `numeric` |
/// | [`AnyType`] | any type |
///
/// A number that does not fit the column is refused by the database, as any row that breaks a constraint.
pub trait Column {
    /// The kind of the value.
    const KIND: Kind;

    /// Appends the value in PostgreSQL's binary format of [`Kind`]. Returns `false` for NULL.
    fn write(&self, to: &mut Vec<u8>) -> bool;
}

/// A value that is never NULL, so that it can be a key.
pub trait KeyColumn: Column {}

/// A value with an order, for [`newer_by`](crate::SqlTable::newer_by).
pub trait Version: KeyColumn {}

/// A number that can be added to a column, for [`add`](crate::SqlTable::add).
pub trait Summand: KeyColumn {}

/// A value as JSON, for a column of type `jsonb` or `json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<T>(pub T);

/// A decimal number as text, such as `"12.50"`, for a column of type `numeric`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numeric(pub String);

/// A value in the text form of the column's type, such as `"2026-01-31"` for `date`.
///
/// As a key, use one text for each value. Rows are combined by their texts, so with `"1.0"` and `"1"` for one key, the
/// earlier record may win.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnyType(pub String);

macro_rules! number {
    ($($type:ty as $wire:ty: $kind:ident),*) => {$(
        impl Column for $type {
            const KIND: Kind = Kind::$kind;

            fn write(&self, to: &mut Vec<u8>) -> bool {
                to.extend_from_slice(&<$wire>::from(*self).to_be_bytes());
                true
            }
        }
        impl KeyColumn for $type {}
        impl Summand for $type {}
    )*};
}

number!(i16 as i16: I16, u8 as i16: I16, i32 as i32: I32, u16 as i32: I32, i64 as i64: I64, u32 as i64: I64);
number!(f32 as f64: F64, f64 as f64: F64);

macro_rules! bytes {
    ($($type:ty: $kind:ident),*) => {$(
        impl Column for $type {
            const KIND: Kind = Kind::$kind;

            fn write(&self, to: &mut Vec<u8>) -> bool {
                to.extend_from_slice(self.as_ref());
                true
            }
        }
        impl KeyColumn for $type {}
    )*};
}

bytes!(String: Text, &str: Text, Vec<u8>: Bytes, &[u8]: Bytes);

impl Version for i16 {}
impl Version for i32 {}
impl Version for i64 {}
impl Version for u32 {}
impl Version for Timestamp {}
impl Version for SystemTime {}

impl Column for bool {
    const KIND: Kind = Kind::Bool;

    fn write(&self, to: &mut Vec<u8>) -> bool {
        to.push(u8::from(*self));
        true
    }
}
impl KeyColumn for bool {}

impl Column for uuid::Uuid {
    const KIND: Kind = Kind::Uuid;

    fn write(&self, to: &mut Vec<u8>) -> bool {
        to.extend_from_slice(self.as_bytes());
        true
    }
}
impl KeyColumn for uuid::Uuid {}

impl Column for Timestamp {
    const KIND: Kind = Kind::Time;

    fn write(&self, to: &mut Vec<u8>) -> bool {
        let micros = self.0.saturating_mul(1000).saturating_sub(UNTIL_2000);
        to.extend_from_slice(&micros.to_be_bytes());
        true
    }
}
impl KeyColumn for Timestamp {}

impl Column for SystemTime {
    const KIND: Kind = Kind::Time;

    fn write(&self, to: &mut Vec<u8>) -> bool {
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let since_1970 = match self.duration_since(Self::UNIX_EPOCH) {
            Ok(after) => micros(after),
            Err(before) => micros(before.duration()).saturating_neg(),
        };
        to.extend_from_slice(&since_1970.saturating_sub(UNTIL_2000).to_be_bytes());
        true
    }
}
impl KeyColumn for SystemTime {}

impl<T: serde::Serialize> Column for Json<T> {
    const KIND: Kind = Kind::Json;

    fn write(&self, to: &mut Vec<u8>) -> bool {
        let start = to.len();
        if serde_json::to_writer(&mut *to, &self.0).is_err() {
            // A map with keys that are no strings has no JSON. The database refuses the text, and names the column.
            to.truncate(start);
        }
        true
    }
}

impl Column for Numeric {
    const KIND: Kind = Kind::Numeric;

    fn write(&self, to: &mut Vec<u8>) -> bool {
        self.0.write(to)
    }
}

impl Column for AnyType {
    const KIND: Kind = Kind::Any;

    fn write(&self, to: &mut Vec<u8>) -> bool {
        self.0.write(to)
    }
}
impl KeyColumn for AnyType {}

impl<T: Column> Column for Option<T> {
    const KIND: Kind = T::KIND;

    fn write(&self, to: &mut Vec<u8>) -> bool {
        self.as_ref().is_some_and(|value| value.write(to))
    }
}

impl Kind {
    /// Returns the type of a value on its way to the server.
    pub(crate) fn wire(self) -> Type {
        match self {
            Self::Text | Self::Json | Self::Numeric | Self::Any => Type::TEXT,
            Self::I16 => Type::INT2,
            Self::I32 => Type::INT4,
            Self::I64 => Type::INT8,
            Self::F64 => Type::FLOAT8,
            Self::Bool => Type::BOOL,
            Self::Bytes => Type::BYTEA,
            Self::Uuid => Type::UUID,
            Self::Time => Type::TIMESTAMPTZ,
        }
    }

    /// Returns the array of [`wire`](Self::wire), as SQL.
    pub(crate) fn wire_array(self) -> &'static str {
        match self {
            Self::Text | Self::Json | Self::Numeric | Self::Any => "pg_catalog.text[]",
            Self::I16 => "pg_catalog.int2[]",
            Self::I32 => "pg_catalog.int4[]",
            Self::I64 => "pg_catalog.int8[]",
            Self::F64 => "pg_catalog.float8[]",
            Self::Bool => "pg_catalog.bool[]",
            Self::Bytes => "pg_catalog.bytea[]",
            Self::Uuid => "pg_catalog.uuid[]",
            Self::Time => "pg_catalog.timestamptz[]",
        }
    }

    /// Returns whether a column of this type takes the value. `base` is the name in `pg_type` of the type, or of the
    /// type under a domain; `category` is its `typcategory`.
    pub(crate) fn fits(self, base: &str, category: char) -> bool {
        match self {
            Self::Text => matches!(category, 'S' | 'E'),
            Self::I16 | Self::I32 | Self::I64 => {
                matches!(
                    base,
                    "int2" | "int4" | "int8" | "numeric" | "float4" | "float8"
                )
            }
            Self::F64 => matches!(base, "float4" | "float8" | "numeric"),
            Self::Bool => base == "bool",
            Self::Bytes => base == "bytea",
            Self::Uuid => base == "uuid",
            Self::Time => base == "timestamptz",
            Self::Json => matches!(base, "json" | "jsonb"),
            Self::Numeric => base == "numeric",
            Self::Any => true,
        }
    }

    /// Returns the Rust types and the matching types of columns, for a message.
    pub(crate) fn expectation(self) -> &'static str {
        match self {
            Self::Text => "a text (text, varchar or an enum)",
            Self::I16 | Self::I32 | Self::I64 => {
                "a whole number (smallint, integer, bigint, numeric)"
            }
            Self::F64 => "a floating-point number (double precision, real, numeric)",
            Self::Bool => "a bool (boolean)",
            Self::Bytes => "bytes (bytea)",
            Self::Uuid => "a Uuid (uuid)",
            Self::Time => "a time (timestamptz)",
            Self::Json => "Json (jsonb, json)",
            Self::Numeric => "Numeric (numeric)",
            Self::Any => "AnyType (any type)",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(value: impl Column) -> Option<Vec<u8>> {
        let mut to = Vec::new();
        value.write(&mut to).then_some(to)
    }

    #[test]
    fn values_have_the_binary_format_of_postgres() {
        assert_eq!(bytes(1_i16), Some(vec![0, 1]));
        assert_eq!(bytes(u8::MAX), Some(vec![0, 255]));
        assert_eq!(bytes(u32::MAX), Some(vec![0, 0, 0, 0, 255, 255, 255, 255]));
        assert_eq!(bytes("ab"), Some(b"ab".to_vec()));
        assert_eq!(bytes(Json(vec![1, 2])), Some(b"[1,2]".to_vec()));
        assert_eq!(bytes(None::<i64>), None);
        assert_eq!(bytes(Timestamp(946_684_800_001)), bytes(1000_i64));
        let before_1970 = SystemTime::UNIX_EPOCH - Duration::from_micros(1);
        assert_eq!(bytes(before_1970), bytes(-UNTIL_2000 - 1));
    }

    #[test]
    fn a_text_does_not_fit_a_number() {
        assert!(Kind::Text.fits("varchar", 'S') && Kind::Text.fits("mood", 'E'));
        assert!(!Kind::Text.fits("int4", 'N'));
        assert!(!Kind::I64.fits("text", 'S'));
        assert!(Kind::Any.fits("date", 'D'));
    }
}
