//! Random ids in Kafka's format.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns 64 random bits. The standard library seeds its hash maps from the system, which is random enough here.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns a random UUID in Kafka's format: 22 characters of URL-safe base 64.
///
/// It never has a leading `-`, because Kafka's StorageTool would parse such a cluster id as an option.
pub(crate) fn uuid() -> String {
    loop {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&random().to_be_bytes());
        bytes[8..].copy_from_slice(&random().to_be_bytes());
        let text = base64url(&bytes);
        if !text.starts_with('-') {
            return text;
        }
    }
}

fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..=chunk.len() {
            let index = group >> (18 - 6 * digit) & 63;
            text.push(char::from(ALPHABET[index as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_url_safe_base64_without_padding() {
        assert_eq!(base64url(b"foobar"), "Zm9vYmFy");
        assert_eq!(base64url(b"f"), "Zg");
        assert_eq!(base64url(&[0xff; 16]), "_____________________w");
    }

    #[test]
    fn ids_differ_and_never_look_like_an_option() {
        let ids: std::collections::BTreeSet<_> = (0..1000).map(|_| uuid()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == 22 && !id.starts_with('-')));
    }
}
