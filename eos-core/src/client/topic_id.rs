//! What tells topics of one name apart.

use std::fmt;

/// Which of all topics of a name: one that is deleted and made anew has another id (KIP-516).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicId(pub u128);

/// As Kafka's tools show it: base64 for URLs, without padding.
impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        // 22 digits of 6 bits hold 132 bits: the last 4 are zero.
        for digit in 0..22_u32 {
            let six = match 122_u32.checked_sub(6 * digit) {
                Some(shift) => self.0 >> shift,
                None => self.0 << 4,
            };
            let digit = DIGITS.get((six & 63) as usize).copied().unwrap_or(b'?');
            write!(f, "{}", char::from(digit))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_looks_as_in_kafkas_tools() {
        // `org.apache.kafka.common.Uuid.ONE_UUID` and one from `kafka-topics.sh --describe`.
        assert_eq!(TopicId(1).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(TopicId(u128::MAX).to_string(), "_____________________w");
    }
}
