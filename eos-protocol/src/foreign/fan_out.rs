//! The progress of an update of a right row through its subscribers.

use super::{Fields, ForeignError, push_bytes, push_time};
use crate::Timestamp;

/// The format of cursors. The first one had no end, so each update began at the first subscriber.
const VERSION: u8 = 2;
const HAS_BEGUN: u8 = 1;
const HAS_END: u8 = 2;

/// The progress of an update of a right row through its subscribers. The rest is background work.
///
/// The subscribers of a foreign key form a circle, in the order of their left keys. An answer always has the current
/// right row. So a newer update continues at the place of the earlier one, for a whole circle from there. If it began
/// at the first subscriber instead, frequent updates would never reach the last ones.
///
/// ```text
/// version (1 byte) · flags (1) · time of the update (8) [ · length (4) · last left key of the circle ] [ · left key of the last answer ]
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FanOut {
    /// The time of the update. A deleted row has no time of its own.
    time: Option<Timestamp>,
    /// The left key of the last subscriber with an answer; `None` before the first one.
    after: Option<Vec<u8>>,
    /// The left key at which the circle ends; `None` if it ends with the last subscriber. It lies behind `after` only once the
    /// circle has passed the last subscriber.
    until: Option<Vec<u8>>,
}

impl FanOut {
    /// An update of a right row. It begins where an earlier one is on its way, or else at the first subscriber.
    #[must_use]
    pub fn begin(time: Option<Timestamp>, under_way: Option<Self>) -> Self {
        let after = under_way.and_then(|it| it.after);
        Self {
            time,
            until: after.clone(),
            after,
        }
    }

    /// The time of the update.
    #[must_use]
    pub const fn time(&self) -> Option<Timestamp> {
        self.time
    }

    /// Returns whether the circle has passed the last subscriber, and continues from the first one to its end.
    fn has_wrapped(&self) -> bool {
        self.until.is_some() && self.after < self.until
    }

    /// The next subscribers: those behind the first left key, up to the second one, which is included. `None` is no bound.
    #[must_use]
    pub fn next(&self) -> (Option<&[u8]>, Option<&[u8]>) {
        let until = self.until.as_deref().filter(|_| self.has_wrapped());
        (self.after.as_deref(), until)
    }

    /// The place behind this answer. Without one, the place stays.
    #[must_use]
    pub fn reached(self, last: Option<Vec<u8>>) -> Self {
        Self {
            after: last.or(self.after),
            ..self
        }
    }

    /// The place once all of the [`next`](Self::next) subscribers have an answer. `None` if the circle is closed.
    #[must_use]
    pub fn wrapped(self) -> Option<Self> {
        let goes_on = self.until.is_some() && !self.has_wrapped();
        goes_on.then_some(Self {
            after: None,
            ..self
        })
    }

    /// The bytes of the row.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let flag = |there: bool, flag: u8| if there { flag } else { 0 };
        let begun = flag(self.after.is_some(), HAS_BEGUN);
        let mut row = vec![VERSION, begun | flag(self.until.is_some(), HAS_END)];
        push_time(&mut row, self.time);
        if let Some(until) = &self.until {
            push_bytes(&mut row, until);
        }
        row.extend_from_slice(self.after.as_deref().unwrap_or_default());
        row
    }

    /// Reads the bytes of [`encode`](Self::encode), also those of the first format.
    ///
    /// # Errors
    /// If the bytes are damaged or newer.
    pub fn decode(row: &[u8]) -> Result<Self, ForeignError> {
        let what = "the cursor of a foreign-key join";
        let (version, mut fields) = Fields::up_to(VERSION, what, row)?;
        let flags = fields.byte()?;
        let known = if version == 1 {
            HAS_BEGUN
        } else {
            HAS_BEGUN | HAS_END
        };
        if flags & !known != 0 {
            return Err(fields.damaged());
        }
        let time = fields.time()?;
        let until = match flags & HAS_END != 0 {
            true => Some(fields.bytes()?.to_vec()),
            false => None,
        };
        let after = match flags & HAS_BEGUN != 0 {
            true => Some(fields.rest().to_vec()),
            false => {
                fields.end()?;
                None
            }
        };
        Ok(Self { time, after, until })
    }
}

/// The maximum work of one unit: a number of answers, and about a number of bytes. Otherwise, large rows would make its
/// transaction too large.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    answers: usize,
    bytes: usize,
}

impl Share {
    /// The bytes of one unit: 1 MiB.
    pub const BYTES: usize = 1 << 20;

    /// A share of this many answers, and of [`BYTES`](Self::BYTES).
    #[must_use]
    pub const fn of(answers: usize) -> Self {
        Self {
            answers,
            bytes: Self::BYTES,
        }
    }

    /// Takes an answer from the share. Returns whether it was the last one. The first answer always fits.
    pub fn take(&mut self, bytes: usize) -> bool {
        self.answers = self.answers.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.is_used_up()
    }

    /// Returns whether no further answer fits.
    #[must_use]
    pub const fn is_used_up(&self) -> bool {
        self.answers == 0 || self.bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Subscribers by their keys, with the number of the update that each has.
    type Rows = std::collections::BTreeMap<u8, u32>;

    fn key(key: u8) -> Vec<u8> {
        vec![key]
    }

    /// Answers subscribers with an update, as the node does.
    fn answer(rows: &mut Rows, mut place: FanOut, newest: u32, answers: usize) -> Option<FanOut> {
        let mut share = Share::of(answers);
        loop {
            let (after, until) = place.next();
            let is_next = |row: &u8| {
                after.is_none_or(|after| after < key(*row).as_slice())
                    && until.is_none_or(|to| key(*row).as_slice() <= to)
            };
            let mut last = None;
            for (row, has) in rows.iter_mut().filter(|(row, _)| is_next(row)) {
                if share.is_used_up() {
                    return Some(place.reached(last));
                }
                *has = newest;
                share.take(1);
                last = Some(key(*row));
            }
            place = place.wrapped()?;
        }
    }

    #[test]
    fn the_formats_are_pinned() {
        let first = FanOut::begin(Some(Timestamp(5)), None);
        assert_eq!(first.encode(), *b"\x02\0\0\0\0\0\0\0\0\x05");
        let on_its_way = first.reached(Some(b"k".to_vec()));
        assert_eq!(on_its_way.encode(), *b"\x02\x01\0\0\0\0\0\0\0\x05k");
        let second = FanOut::begin(Some(Timestamp(6)), Some(on_its_way.clone()));
        assert_eq!(second.encode(), *b"\x02\x03\0\0\0\0\0\0\0\x06\0\0\0\x01kk");
        // Rows of the first format.
        let row = b"\x01\x01\0\0\0\0\0\0\0\x05k";
        assert_eq!(FanOut::decode(row), Ok(on_its_way));
        let row = b"\x01\0\0\0\0\0\0\0\0\x05";
        assert_eq!(
            FanOut::decode(row),
            Ok(FanOut::begin(Some(Timestamp(5)), None))
        );
    }

    #[test]
    fn places_are_read_as_they_were_written() {
        let keys = [None, Some(Vec::new()), Some(b"k".to_vec())];
        for time in [None, Some(Timestamp(-1)), Some(Timestamp(1))] {
            for after in keys.clone() {
                for until in keys.clone() {
                    let after = after.clone();
                    let place = FanOut { time, after, until };
                    assert_eq!(FanOut::decode(&place.encode()), Ok(place));
                }
            }
        }
        for damaged in [
            &b"\x01\x03\0\0\0\0\0\0\0\x05"[..],
            b"\x01\0\0\0\0\0\0\0\0\x05k",
            b"\x02\x04\0\0\0\0\0\0\0\x05",
            b"\x02\x02\0\0\0\0\0\0\0\x05\0\0\0\x02k",
            b"\x02\x02\0\0\0\0\0\0\0\x05\0\0\0\x01kk",
        ] {
            let found = FanOut::decode(damaged);
            assert!(
                matches!(found, Err(ForeignError::Damaged { .. })),
                "{found:?}"
            );
        }
        let newer = FanOut::decode(b"\x03").unwrap_err();
        assert!(
            newer
                .to_string()
                .contains("format 3, this version reads up to 2")
        );
    }

    #[test]
    fn an_update_in_the_middle_goes_round_from_there() {
        let mut rows: Rows = (0..4).map(|row| (row, 0)).collect();
        let first = FanOut::begin(Some(Timestamp(1)), None);
        let place = answer(&mut rows, first, 1, 2).unwrap();
        assert_eq!(place.next(), (Some(&[1][..]), None));
        let second = FanOut::begin(Some(Timestamp(2)), Some(place));
        assert_eq!(second.time(), Some(Timestamp(2)));
        let place = answer(&mut rows, second, 2, 3).unwrap();
        assert_eq!(rows.values().copied().collect::<Vec<_>>(), [2, 1, 2, 2]);
        assert_eq!(place.next(), (Some(&[0][..]), Some(&[1][..])));
        assert_eq!(answer(&mut rows, place, 2, 3), None);
        assert!(rows.values().all(|has| *has == 2));
    }

    #[test]
    fn a_share_ends_with_its_answers_or_its_bytes() {
        let mut share = Share::of(2);
        assert!(!share.take(10) && share.take(10));
        let mut share = Share::of(100);
        assert!(!share.take(Share::BYTES - 1) && share.take(1));
        // The first one fits.
        let mut share = Share::of(100);
        assert!(!share.is_used_up() && share.take(Share::BYTES * 10));
    }

    proptest! {
        /// Updates come more often than one of them reaches all. Each subscriber has an answer in each circle, and the last
        /// update in the end.
        #[test]
        fn frequent_updates_reach_every_subscriber(
            count in 1_u8..60,
            each in 1_usize..9,
            every in 1_u32..5,
            moves in proptest::collection::vec(any::<(bool, u8)>(), 0..200),
        ) {
            let mut rows: Rows = (0..count).map(|row| (row, 0)).collect();
            let (mut place, mut newest, mut moves) = (None, 0, moves.into_iter());
            // A circle takes this many units. Then an update that is older than two circles is at no subscriber.
            let circle = u32::from(count).div_ceil(u32::try_from(each).unwrap()) + 1;
            for unit in 0..circle * 6 {
                if unit % every == 0 {
                    newest += 1;
                    place = Some(FanOut::begin(None, place));
                }
                // Rows that were not there at the beginning come and go.
                if let Some((comes, row)) = moves.next() {
                    let row = 100 + row % 50;
                    match comes {
                        true => rows.insert(row, newest),
                        false => rows.remove(&row),
                    };
                }
                place = place.and_then(|place| {
                    let place = FanOut::decode(&place.encode()).unwrap();
                    answer(&mut rows, place, newest, each)
                });
                let coming = u32::try_from(rows.range(100..).count()).unwrap();
                let oldest = rows.range(..100).map(|(_, has)| *has).min().unwrap();
                let circles = 2 * (circle + coming);
                prop_assert!(newest - oldest <= circles.div_ceil(every) + 1, "{newest}: {rows:?}");
            }
            while let Some(next) = place {
                place = answer(&mut rows, next, newest, each);
            }
            prop_assert!(rows.values().all(|has| *has == newest), "{newest}: {rows:?}");
        }
    }
}
