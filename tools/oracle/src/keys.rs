//! The distinct keys of a run.

use std::collections::HashMap;

/// A key, as its index in [`Keys`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(u32);

/// Every distinct key, stored once. A missing key is a key, too.
#[derive(Debug, Default, Clone)]
pub struct Keys {
    names: Vec<Option<Box<[u8]>>>,
    numbers: HashMap<Option<Box<[u8]>>, u32>,
}

impl Keys {
    /// Returns the key with these bytes.
    pub fn intern(&mut self, bytes: Option<&[u8]>) -> Key {
        let bytes = bytes.map(Box::from);
        if let Some(number) = self.numbers.get(&bytes) {
            return Key(*number);
        }
        let number = self.names.len() as u32;
        self.names.push(bytes.clone());
        self.numbers.insert(bytes, number);
        Key(number)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the bytes of a key, or `None` for a missing key.
    pub fn bytes(&self, key: Key) -> Option<&[u8]> {
        self.names.get(key.0 as usize)?.as_deref()
    }

    /// Returns the key as readable text.
    pub(super) fn name(&self, key: Key) -> String {
        match self.bytes(key) {
            Some(bytes) => shown(bytes),
            None => "(none)".to_owned(),
        }
    }
}

/// Returns bytes as text if they are text, or as hexadecimal digits otherwise.
pub(super) fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok("") => "(empty)".to_owned(),
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes
            .iter()
            .fold("0x".to_owned(), |hex, byte| hex + &format!("{byte:02x}")),
    }
}
