//! Ids made from the content of records.

use sha2::{Digest, Sha256};

/// The SHA-256 (FIPS 180-4) of a namespace and of fields, each preceded by its length (8 bytes, big-endian).
#[derive(Debug, Clone)]
pub struct ContentHash(Sha256);

impl ContentHash {
    /// The hash of a namespace without fields.
    #[must_use]
    pub fn new(namespace: &str) -> Self {
        let mut hash = Self(Sha256::new());
        hash.add(namespace.as_bytes());
        hash
    }

    /// Adds a field.
    pub fn add(&mut self, field: &[u8]) {
        self.0.update((field.len() as u64).to_be_bytes());
        self.0.update(field);
    }

    /// The hash.
    #[must_use]
    pub fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(namespace: &str, fields: &[&[u8]]) -> [u8; 32] {
        let mut hash = ContentHash::new(namespace);
        fields.iter().for_each(|field| hash.add(field));
        hash.finish()
    }

    #[test]
    fn fields_and_namespaces_are_apart() {
        let ids = [
            hash("n", &[b"ab", b"c"]),
            hash("n", &[b"a", b"bc"]),
            hash("n", &[b"abc"]),
            hash("n", &[b"abc", b""]),
            hash("na", &[b"bc"]),
        ];
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(id), "{at}");
        }
        assert_eq!(hash("n", &[b"a"]), hash("n", &[b"a"]));
    }

    /// Ids are in stores and topics: another hash would let duplicates pass.
    #[test]
    fn the_hash_is_pinned() {
        let hex = |namespace, fields: &[&[u8]]| {
            let hash = hash(namespace, fields);
            hash.map(|byte| format!("{byte:02x}")).concat()
        };
        // The SHA-256 of 00 00 00 00 00 00 00 01 "n" 00 00 00 00 00 00 00 02 "ab". All expected values come from
        // `sha256sum`.
        assert_eq!(
            hex("n", &[b"ab"]),
            "bffcda67c5404008eefc4018813c8c864a3ceefec9908cde25d32cae853983ce"
        );
        assert_eq!(
            hex("n", &[]),
            "1536548ea0076714eb1752f81d647abb9066d6e4e1f20657a79bec1ddeb12eff"
        );
        assert_eq!(
            hex("checkout", &[b"ada", &11_u64.to_be_bytes()]),
            "cb14636770f2fcae3413f558b7ef28f07425f3296ce347c607d73cd46b189227"
        );
        assert_eq!(
            hex("", &[b"", b""]),
            "9d908ecfb6b256def8b49a7c504e6c889c4b0e41fe6ce3e01863dd7b61a20aa0"
        );
    }
}
