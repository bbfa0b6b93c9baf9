//! Detection of `serde` types that can hold Kafka's null.
//!
//! `serde` reveals a type only while it reads or writes a value. This module uses a format that holds nothing but
//! `None`, so only an `Option` or a transparent wrapper of one succeeds.

use std::fmt;

use serde::de::{self, DeserializeOwned, Visitor};
use serde::ser::{self, Impossible, Serialize};

/// The value that stands for null, if the type has one: `None`.
pub(super) fn read<T: DeserializeOwned>() -> Option<T> {
    T::deserialize(Null).ok()
}

/// Whether the value stands for null.
pub(super) fn is<T: Serialize + ?Sized>(value: &T) -> bool {
    value.serialize(Null).is_ok()
}

struct Null;

/// The error for any other value.
#[derive(Debug)]
struct Other;

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not null")
    }
}

impl std::error::Error for Other {}

impl de::Error for Other {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl ser::Error for Other {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl<'de> de::Deserializer<'de> for Null {
    type Error = Other;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Other> {
        Err(Other)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Other> {
        visitor.visit_none()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Other> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// What is written as one value.
macro_rules! scalars {
    ($($method:ident: $type:ty),+) => {$(
        fn $method(self, _: $type) -> Result<(), Other> {
            Err(Other)
        }
    )+};
}

impl ser::Serializer for Null {
    type Ok = ();
    type Error = Other;
    type SerializeSeq = Impossible<(), Other>;
    type SerializeTuple = Impossible<(), Other>;
    type SerializeTupleStruct = Impossible<(), Other>;
    type SerializeTupleVariant = Impossible<(), Other>;
    type SerializeMap = Impossible<(), Other>;
    type SerializeStruct = Impossible<(), Other>;
    type SerializeStructVariant = Impossible<(), Other>;

    fn serialize_none(self) -> Result<(), Other> {
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Other> {
        value.serialize(self)
    }

    scalars! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32,
        serialize_i64: i64, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32,
        serialize_u64: u64, serialize_f32: f32, serialize_f64: f64, serialize_char: char,
        serialize_str: &str, serialize_bytes: &[u8], serialize_unit_struct: &'static str
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<(), Other> {
        Err(Other)
    }

    fn serialize_unit(self) -> Result<(), Other> {
        Err(Other)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Other> {
        Err(Other)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), Other> {
        Err(Other)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, Other> {
        Err(Other)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Other> {
        Err(Other)
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, Other> {
        Err(Other)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Other> {
        Err(Other)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Other> {
        Err(Other)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct, Other> {
        Err(Other)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Other> {
        Err(Other)
    }
}
