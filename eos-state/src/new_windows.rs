//! Filters that recognise missing keys of new windows.

use crate::overlay::KeyHash;

/// The first bytes of the key of a windowed store: the start of its window, in an order-preserving form.
type Start = [u8; 8];

/// The number of bits of a filter for each noted key. With three bits set for each, one in fifty missing keys is not
/// recognised.
const BITS_PER_KEY: usize = 10;
/// The bits that are set for a key are in one cache line: a lookup waits for memory once.
const LINE: usize = 64 / size_of::<u64>();

/// Recognises missing keys of windows that began after the store was opened.
///
/// The first record of a key in a window reads a key that does not exist, and the engine needs as long to find nothing
/// as to find a row. A window that starts after the last stored one has only rows that were written since. A Bloom
/// filter (Bloom 1970) notes their keys. Two filters take turns, so only the newest windows are recognised.
///
/// The caller chooses the hashed bytes: a whole key for [`lacks`](Self::lacks), or a key without its start for
/// [`lacks_since`](Self::lacks_since).
#[derive(Debug, Default)]
pub(crate) struct NewWindows {
    /// Whether the last stored window is known.
    is_known: bool,
    /// The first recognised start, if there is one.
    from: Option<Start>,
    /// The first start whose keys are in the second filter.
    second_from: Start,
    /// The last noted start.
    last: Start,
    filters: [Filter; 2],
}

#[derive(Debug, Default)]
struct Filter {
    /// The bits. The number of words is a power of two.
    words: Vec<u64>,
    /// The number of noted keys.
    keys: usize,
}

impl NewWindows {
    /// The least memory of a filter, in bytes.
    pub(crate) const LEAST: usize = LINE * size_of::<u64>();

    /// Returns the memory of both filters.
    pub(crate) fn bytes(&self) -> usize {
        let words = self.filters.iter().map(|filter| filter.words.len());
        words.sum::<usize>() * size_of::<u64>()
    }

    /// Returns whether the last stored window is known.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Recognises missing keys of windows after that of `last`, the last key of the store. `bytes` is the memory of a
    /// filter.
    pub(crate) fn begin_after(&mut self, last: Option<&[u8]>, bytes: usize) {
        let last = last.unwrap_or_default();
        let from = match start_of(last) {
            Some(start) => after(start),
            None => {
                // A short key sorts before every start that begins with it.
                let mut start = [0; 8];
                start[..last.len()].copy_from_slice(last);
                Some(start)
            }
        };
        let second_from = from.unwrap_or_default();
        *self = Self {
            is_known: true,
            from,
            second_from,
            last: second_from,
            filters: [Filter::of(bytes), Filter::of(bytes)],
        };
    }

    /// Notes a key that the engine has, or will or may have.
    pub(crate) fn note(&mut self, hash: KeyHash, key: &[u8]) {
        let (Some(from), Some(start)) = (self.from, start_of(key)) else {
            return;
        };
        if start < from {
            return;
        }
        self.last = self.last.max(start);
        self.filters[usize::from(start >= self.second_from)].note(hash);
        if self.filters[1].is_full()
            && let Some(second_from) = after(self.last)
        {
            self.from = Some(self.second_from);
            self.second_from = second_from;
            self.filters.swap(0, 1);
            self.filters[1].clear();
        }
        // A window with very many keys, or one record far in the future, fills the first filter alone.
        if self.filters[0].is_useless() {
            self.from = Some(self.second_from);
            self.filters[0].clear();
        }
    }

    /// Returns whether the engine certainly does not have this key.
    pub(crate) fn lacks(&self, hash: KeyHash, key: &[u8]) -> bool {
        let (Some(from), Some(start)) = (self.from, start_of(key)) else {
            return false;
        };
        start >= from && !self.filters[usize::from(start >= self.second_from)].may_have(hash)
    }

    /// Returns whether the filter certainly has no key with this hash in the window of `key` or in a later one.
    pub(crate) fn lacks_since(&self, hash: KeyHash, key: &[u8]) -> bool {
        let (Some(from), Some(start)) = (self.from, start_of(key)) else {
            return false;
        };
        let [first, second] = &self.filters;
        start >= from
            && !second.may_have(hash)
            && (start >= self.second_from || !first.may_have(hash))
    }
}

impl Filter {
    /// Returns a filter of at most this many bytes, and of at least one cache line.
    fn of(bytes: usize) -> Self {
        let words = bytes.max(NewWindows::LEAST) / size_of::<u64>();
        Self {
            words: vec![0; 1 << words.ilog2()],
            keys: 0,
        }
    }

    fn places(&self, hash: KeyHash) -> [(usize, u64); 3] {
        let line = (hash.bits() as usize * LINE) & (self.words.len() - 1);
        // The golden ratio: the places in the line use the bits that the line drops.
        let bits = u64::from(hash.bits()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [37, 46, 55].map(|shift| {
            let bit = (bits >> shift) as usize % (LINE * u64::BITS as usize);
            (
                line + bit / u64::BITS as usize,
                1 << (bit % u64::BITS as usize),
            )
        })
    }

    fn note(&mut self, hash: KeyHash) {
        if self.may_have(hash) {
            return;
        }
        for (word, bit) in self.places(hash) {
            self.words[word] |= bit;
        }
        self.keys += 1;
    }

    fn may_have(&self, hash: KeyHash) -> bool {
        let places = self.places(hash).into_iter();
        let mut missing = places.filter(|(word, bit)| self.words[*word] & bit == 0);
        missing.next().is_none()
    }

    fn is_full(&self) -> bool {
        self.keys * BITS_PER_KEY >= self.words.len() * u64::BITS as usize
    }

    /// Returns whether it recognises few missing keys.
    fn is_useless(&self) -> bool {
        self.keys * BITS_PER_KEY >= 4 * self.words.len() * u64::BITS as usize
    }

    fn clear(&mut self) {
        self.words.fill(0);
        self.keys = 0;
    }
}

fn start_of(key: &[u8]) -> Option<Start> {
    key.first_chunk().copied()
}

/// Returns the next possible start.
fn after(start: Start) -> Option<Start> {
    u64::from_be_bytes(start)
        .checked_add(1)
        .map(u64::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay::KeyHasher;

    fn key(start: u64, number: u32) -> Vec<u8> {
        [&start.to_be_bytes()[..], &number.to_be_bytes()].concat()
    }

    #[test]
    fn only_missing_keys_of_new_windows_are_recognised() {
        let hasher = KeyHasher::random();
        let mut windows = NewWindows::default();
        let lacks = |windows: &NewWindows, start, number| {
            let key = key(start, number);
            windows.lacks(hasher.hash(&key), &key)
        };
        assert!(!lacks(&windows, 9, 0), "the last window is unknown");
        windows.begin_after(Some(&key(7, 1)), 1 << 16);
        for start in 0..20 {
            for number in 0..100 {
                assert!(!lacks(&windows, start.min(7), number));
                let key = key(start, number);
                windows.note(hasher.hash(&key), &key);
                assert!(!lacks(&windows, start, number));
            }
            let found = (100..10_100).filter(|number| lacks(&windows, start, *number));
            let found = found.count();
            assert!(
                if start <= 7 {
                    found == 0
                } else {
                    found > 9_500
                },
                "{start}: {found}"
            );
        }
        windows.begin_after(Some(&[u8::MAX; 9]), 1 << 16);
        assert!(!lacks(&windows, u64::MAX, 1));
        windows.begin_after(Some(b""), 1 << 16);
        assert!(lacks(&windows, 0, 1) && !windows.lacks(hasher.hash(b"short"), b"short"));
    }

    #[test]
    fn a_noted_key_is_never_taken_for_a_missing_one_and_the_newest_windows_are_recognised() {
        let hasher = KeyHasher::random();
        let mut windows = NewWindows::default();
        windows.begin_after(None, 1 << 10);
        let mut noted = Vec::new();
        for start in 0..200_u64 {
            for number in 0..300 {
                let key = key(start - start.min(u64::from(number % 3)), number);
                windows.note(hasher.hash(&key), &key);
                noted.push(key);
            }
            assert!(
                noted
                    .iter()
                    .all(|key| !windows.lacks(hasher.hash(key), key))
            );
        }
        let next = (0..1_000).map(|number| key(200, number));
        let found = next.filter(|key| windows.lacks(hasher.hash(key), key));
        assert!(found.count() > 900);
        assert_eq!(windows.bytes(), 2 << 10);
    }
}
