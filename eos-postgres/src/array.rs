//! Parameters of statements in PostgreSQL's binary format.

use std::error::Error;
use std::fmt;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

use crate::value::Kind;

/// A column of a chunk: an array with one element per row.
#[derive(Clone)]
pub(crate) struct Array {
    kind: Kind,
    count: i32,
    has_null: bool,
    elements: Vec<u8>,
}

/// Prints no values, because the driver logs the parameters of statements.
impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values of {:?}", self.count, self.kind)
    }
}

impl Array {
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            kind,
            count: 0,
            has_null: false,
            elements: Vec::new(),
        }
    }

    /// Appends a value in the binary format of the kind.
    pub(crate) fn push(&mut self, value: Option<&[u8]>) {
        self.count = self.count.saturating_add(1);
        match value {
            Some(value) => {
                let length = i32::try_from(value.len()).unwrap_or(i32::MAX);
                self.elements.extend_from_slice(&length.to_be_bytes());
                self.elements.extend_from_slice(value);
            }
            None => {
                self.has_null = true;
                self.elements.extend_from_slice(&(-1_i32).to_be_bytes());
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(0)
    }
}

impl ToSql for Array {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let dimensions = i32::from(self.count > 0);
        out.put_i32(dimensions);
        out.put_i32(i32::from(self.has_null));
        out.put_u32(self.kind.wire().oid());
        if dimensions == 1 {
            out.put_i32(self.count);
            // The lower bound.
            out.put_i32(1);
            out.put_slice(&self.elements);
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A parameter of a user's statement.
pub(crate) struct Param {
    pub(crate) kind: Kind,
    pub(crate) value: Option<Vec<u8>>,
}

/// Prints no value, as [`Array`].
impl fmt::Debug for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind)
    }
}

impl Param {
    /// Returns the type for the prepared statement. The server infers the type of a text from its
    /// use.
    pub(crate) fn declared(kind: Kind) -> Type {
        match kind.wire() {
            Type::TEXT => Type::UNKNOWN,
            wire => wire,
        }
    }
}

impl ToSql for Param {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match &self.value {
            Some(value) => {
                out.put_slice(value);
                Ok(IsNull::No)
            }
            None => Ok(IsNull::Yes),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        if self.kind.wire() == Type::TEXT {
            Format::Text
        } else {
            Format::Binary
        }
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_encoded_as_postgres_reads_it() {
        let mut array = Array::new(Kind::Text);
        array.push(Some(b"a"));
        array.push(None);
        let mut out = BytesMut::new();
        array.to_sql(&Type::TEXT_ARRAY, &mut out).unwrap();
        let expected: Vec<u8> = [1_i32, 1, 25, 2, 1, 1]
            .iter()
            .flat_map(|number| number.to_be_bytes())
            .chain(*b"a")
            .chain((-1_i32).to_be_bytes())
            .collect();
        assert_eq!(out.to_vec(), expected);
        assert_eq!(array.len(), 2);
    }
}
