//! Damaged bytes.

use super::violation::Written;
use crate::rng::Rng;

/// The maximum number of cuts and bit flips, evenly spaced in longer bytes.
const CUTS: usize = 256;
const FLIPS: usize = 512;
/// The number of random byte strings, the same ones each time.
const RANDOM: usize = 64;
const LONGEST: usize = 64;

/// The damaged variants of these bytes.
pub(super) fn damaged(bytes: &[u8]) -> impl Iterator<Item = Written> {
    let cuts = places(bytes.len(), CUTS).map(|length| bytes[..length].to_vec());
    let flips = places(bytes.len() * 8, FLIPS).map(|bit| {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        flipped
    });
    let longer = [0, 1, b' ', 0xff].map(|more| [bytes, &[more]].concat());
    let twice = [bytes, bytes].concat();
    let mut rng = Rng::new(bytes.len() as u64);
    let longest = bytes.len().min(LONGEST) + 8;
    let random = (0..RANDOM).map(move |_| {
        let length = rng.below(longest + 1);
        (0..length).map(|_| rng.draw() as u8).collect()
    });
    let some = cuts.chain(flips).chain(longer).chain([twice]).chain(random);
    let all = [Written(None), Written(Some(Vec::new()))];
    all.into_iter()
        .chain(some.map(|bytes| Written(Some(bytes))))
}

/// All numbers below `end`, or at most the maximum number.
fn places(end: usize, most: usize) -> impl Iterator<Item = usize> {
    // The step is odd, so that the flipped bit differs between bytes.
    let step = if end <= most {
        1
    } else {
        end.div_ceil(most) | 1
    };
    (0..end).step_by(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_is_cut_and_flipped_everywhere() {
        let all: Vec<_> = damaged(b"ab").collect();
        for expected in [&b""[..], b"a", b"\x61\x63", b"\xe1b", b"ab\0", b"abab"] {
            assert!(all.contains(&expected.into()), "{expected:?}");
        }
        assert!(all.contains(&Written(None)));
        assert_eq!(all.len(), 2 + 2 + 16 + 4 + 1 + RANDOM);
        assert_eq!(
            all,
            damaged(b"ab").collect::<Vec<_>>(),
            "the same each time"
        );
    }

    #[test]
    fn long_bytes_are_damaged_at_every_bit_of_a_byte_in_limited_time() {
        let long = vec![0; 100_000];
        let all: Vec<_> = damaged(&long).filter_map(|written| written.0).collect();
        assert!(all.len() < CUTS + FLIPS + RANDOM + 10);
        for bit in 0..8 {
            assert!(all.iter().any(|bytes| bytes.contains(&(1 << bit))));
        }
    }
}
