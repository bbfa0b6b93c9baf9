//! Types with a standard encoding in Kafka.

use super::{CodecError, Decode, Encode, Encoded, Field, pool};

/// A type with a standard encoding in Kafka, read and written by [`Plain`].
///
/// Text is UTF-8. Integers are big-endian, as in Java's `IntegerSerializer` and `LongSerializer`. Bytes are unchanged.
/// `()` and `None` are null.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no plain encoding in Kafka",
    note = "text, bytes and integers have one; a tuple struct around one of them gets it by `eos_core::plain_key!`",
    note = "for other types, replace `::plain(name)` with `::json(name)`, or pass codecs to `::with(name, ..)`"
)]
pub trait PlainType: Sized + 'static {
    /// Reads a value; `None` is Kafka's null.
    ///
    /// # Errors
    /// [`CodecError`] if the bytes are not a value of this type.
    fn read(bytes: Option<&[u8]>) -> Result<Self, CodecError>;

    /// Appends the value's bytes, or reports that it is null.
    fn write(&self, into: &mut Vec<u8>) -> Encoded;

    /// Takes back a value that was written; see [`Encode::recycle`].
    fn recycle(self) {}
}

impl PlainType for String {
    fn read(bytes: Option<&[u8]>) -> Result<Self, CodecError> {
        let bytes = bytes.ok_or(CodecError::Null {
            expected: "UTF-8 text",
        })?;
        String::from_utf8(pool::copy(bytes)).map_err(|e| CodecError::invalid("UTF-8 text", e))
    }

    fn recycle(self) {
        pool::give(self.into_bytes());
    }

    fn write(&self, into: &mut Vec<u8>) -> Encoded {
        into.extend_from_slice(self.as_bytes());
        Encoded::Bytes
    }
}

impl PlainType for Vec<u8> {
    fn read(bytes: Option<&[u8]>) -> Result<Self, CodecError> {
        bytes
            .map(pool::copy)
            .ok_or(CodecError::Null { expected: "bytes" })
    }

    fn recycle(self) {
        pool::give(self);
    }

    fn write(&self, into: &mut Vec<u8>) -> Encoded {
        into.extend_from_slice(self);
        Encoded::Bytes
    }
}

macro_rules! integer {
    ($($int:ty => $what:literal),+) => {$(
        impl PlainType for $int {
            fn read(bytes: Option<&[u8]>) -> Result<Self, CodecError> {
                let bytes = bytes.ok_or(CodecError::Null { expected: $what })?;
                let bytes = bytes.try_into().map_err(|_| {
                    CodecError::invalid($what, format!("{} bytes", bytes.len()))
                })?;
                Ok(Self::from_be_bytes(bytes))
            }

            fn write(&self, into: &mut Vec<u8>) -> Encoded {
                into.extend_from_slice(&self.to_be_bytes());
                Encoded::Bytes
            }
        }
    )+};
}

integer!(
    i32 => "a 4-byte integer",
    u32 => "a 4-byte integer",
    i64 => "an 8-byte integer",
    u64 => "an 8-byte integer"
);

impl PlainType for () {
    fn read(_: Option<&[u8]>) -> Result<Self, CodecError> {
        Ok(())
    }

    fn write(&self, _: &mut Vec<u8>) -> Encoded {
        Encoded::Null
    }
}

impl<T: PlainType> PlainType for Option<T> {
    fn read(bytes: Option<&[u8]>) -> Result<Self, CodecError> {
        match bytes {
            None => Ok(None),
            some => T::read(some).map(Some),
        }
    }

    fn write(&self, into: &mut Vec<u8>) -> Encoded {
        match self {
            None => Encoded::Null,
            Some(value) => value.write(into),
        }
    }

    fn recycle(self) {
        if let Some(value) = self {
            value.recycle();
        }
    }
}

/// Gives tuple structs of one field the [`PlainType`](crate::codec::PlainType) encoding of that field. The structs have
/// no generic parameters and no `Drop`, and the macro is called in their module.
///
/// A key type of your own then has the same bytes as the type inside it, and so the same partition. With
/// [`Json`](crate::codec::Json), the text `c1` would be the bytes `"c1"`, with quotes, and belong to another partition than the
/// producer's.
///
/// ```
/// use eos_core::{PlainTopic, plain_key};
///
/// #[derive(Clone, Debug, PartialEq)]
/// struct CustomerId(String);
/// #[derive(Clone, Debug, PartialEq)]
/// struct OrderNumber(u64);
/// plain_key!(CustomerId(String), OrderNumber(u64));
///
/// let last_orders = PlainTopic::<CustomerId, OrderNumber>::named("last-orders");
/// ```
#[macro_export]
macro_rules! plain_key {
    ($($name:ident($inner:ty)),+ $(,)?) => {$(
        impl $crate::codec::PlainType for $name {
            fn read(
                bytes: ::core::option::Option<&[u8]>,
            ) -> ::core::result::Result<Self, $crate::codec::CodecError> {
                <$inner as $crate::codec::PlainType>::read(bytes).map(Self)
            }

            fn write(&self, into: &mut ::std::vec::Vec<u8>) -> $crate::codec::Encoded {
                $crate::codec::PlainType::write(&self.0, into)
            }

            fn recycle(self) {
                $crate::codec::PlainType::recycle(self.0);
            }
        }
    )+};
}

/// The codec of text, bytes and integers: every [`PlainType`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Plain;

#[diagnostic::do_not_recommend]
impl<T: PlainType> Decode<T> for Plain {
    fn decode(&self, bytes: Option<&[u8]>, _: &Field<'_>) -> Result<T, CodecError> {
        T::read(bytes)
    }
}

#[diagnostic::do_not_recommend]
impl<T: PlainType> Encode<T> for Plain {
    fn encode(&self, value: &T, into: &mut Vec<u8>, _: &Field<'_>) -> Result<Encoded, CodecError> {
        Ok(value.write(into))
    }

    fn recycle(&self, value: T) {
        value.recycle();
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug, PartialEq)]
    struct CustomerId(String);
    #[derive(Debug, PartialEq)]
    struct Number(Option<u64>);
    crate::plain_key!(CustomerId(String), Number(Option<u64>));

    #[test]
    fn a_tuple_struct_has_the_bytes_of_its_field() {
        check(CustomerId("c1".into()), Some(b"c1"));
        check(Number(Some(1)), Some(&[0, 0, 0, 0, 0, 0, 0, 1]));
        check(Number(None), None);
        assert!(CustomerId::read(None).is_err());
    }

    #[track_caller]
    fn check<T: PlainType + PartialEq + fmt::Debug>(value: T, bytes: Option<&[u8]>) {
        let mut written = Vec::new();
        let encoded = value.write(&mut written);
        let as_kafka = (encoded == Encoded::Bytes).then_some(&written[..]);
        assert_eq!(as_kafka, bytes);
        assert_eq!(T::read(bytes).unwrap(), value);
    }

    #[test]
    fn bytes_are_those_that_java_writes() {
        check("zürich".to_owned(), Some("zürich".as_bytes()));
        check(-2i32, Some(&[0xff, 0xff, 0xff, 0xfe]));
        check(258u64, Some(&[0, 0, 0, 0, 0, 0, 1, 2]));
        check(vec![0u8, 255], Some(&[0, 255]));
        check((), None);
        check(None::<String>, None);
        check(Some(String::new()), Some(b""));
    }

    #[test]
    fn what_does_not_fit_says_what_was_expected() {
        let error = |r: Result<i64, CodecError>| r.unwrap_err().to_string();
        assert_eq!(
            error(i64::read(Some(b"123"))),
            "not an 8-byte integer: 3 bytes"
        );
        assert!(error(i64::read(None)).starts_with("null where an 8-byte integer was expected"));
        let error = String::read(Some(b"\xff")).unwrap_err().to_string();
        assert!(
            error.starts_with("not UTF-8 text: invalid utf-8"),
            "{error}"
        );
    }
}
