//! How much of a partition is left to read, from what was heard anyway.
//!
//! librdkafka tells three things, and none of them is the last stable offset. The *high watermark*
//! of the last fetch (`rd_kafka_get_watermark_offsets`) counts what open transactions wrote, also
//! for a reader of committed records. The *position* (`rd_kafka_position`) advances over the markers
//! of transactions, which are never handed out. An *end of partition* (`enable.partition.eof`)
//! stands at the last stable offset, but comes with the next fetch only, up to
//! `fetch.wait.max.ms` later. A position at the high watermark settles it at once; where an open
//! transaction keeps the two apart, the end of the partition does.

/// What a partition's reader has seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tail {
    /// After the last record taken, or where reading began.
    next: i64,
    /// The last stable offset, if nothing was taken since it was reached.
    eof: Option<i64>,
    /// Whether anything came since reading began.
    heard: bool,
    /// The high watermark of before: that of an earlier ownership, maybe.
    high_before: i64,
}

/// What librdkafka knows of a partition at a moment; below zero: not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) high: i64,
    pub(super) position: i64,
}

impl Tail {
    /// Reading begins at this offset.
    pub(super) fn at(next: i64, known: Known) -> Self {
        Self {
            next,
            eof: None,
            heard: false,
            high_before: known.high,
        }
    }

    /// A record was taken.
    pub(super) fn took(&mut self, offset: i64) {
        self.heard = true;
        self.next = offset + 1;
        self.eof = self.eof.filter(|&eof| eof >= self.next);
    }

    /// The partition ends here, for now.
    pub(super) fn ended(&mut self, at: i64) {
        self.heard = true;
        self.eof = Some(at);
    }

    /// The end that was reached, if nothing was taken since.
    pub(super) fn reached(&self) -> Option<i64> {
        self.eof
    }

    /// See [`Source::end`](crate::client::Source::end). `waiting`: something came and was not taken
    /// yet.
    pub(super) fn end(&self, known: Known, waiting: bool) -> Option<i64> {
        if known.high < 0 || !(self.heard || known.high != self.high_before) {
            return None;
        }
        // The batch call of librdkafka 2.12.1 takes an end of partition for a record and advances
        // the position past it (librdkafka #4844).
        let position = match self.eof {
            Some(eof) if known.position <= eof + 1 => eof,
            _ => known.position.max(self.next),
        };
        let done = !waiting && (self.eof == Some(position) || position >= known.high);
        Some(if done {
            self.next
        } else {
            known.high.max(self.next + 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: i64 = -1001;

    fn known(high: i64, position: i64) -> Known {
        Known { high, position }
    }

    #[test]
    fn nothing_is_known_before_anything_was_heard() {
        let tail = Tail::at(5, known(NEVER, NEVER));
        assert_eq!(tail.end(known(NEVER, NEVER), false), None);
        assert_eq!(tail.end(known(9, NEVER), false), Some(9));
        // What was heard when the partition was ours before says nothing of now.
        let mut tail = Tail::at(9, known(7, NEVER));
        assert_eq!(tail.end(known(7, NEVER), false), None);
        tail.ended(9);
        assert_eq!(tail.end(known(9, 10), false), Some(9));
    }

    #[test]
    fn the_end_is_settled_as_soon_as_the_last_record_is_taken() {
        let mut tail = Tail::at(0, known(NEVER, NEVER));
        tail.took(0);
        assert_eq!(tail.end(known(2, 1), false), Some(2));
        tail.took(1);
        assert_eq!(tail.end(known(2, 2), false), Some(2));
        assert_eq!(tail.end(known(2, 2), true), Some(3), "something waits");
    }

    #[test]
    fn a_marker_at_the_end_is_nothing_to_wait_for() {
        let mut tail = Tail::at(0, known(NEVER, NEVER));
        tail.took(0);
        assert_eq!(tail.end(known(2, 1), false), Some(2), "it may be a record");
        assert_eq!(
            tail.end(known(2, 2), false),
            Some(1),
            "the position passed it"
        );
    }

    #[test]
    fn records_of_an_open_transaction_are_nothing_to_wait_for_until_they_are_committed() {
        let mut tail = Tail::at(0, known(NEVER, NEVER));
        tail.took(0);
        assert_eq!(tail.end(known(5, 1), false), Some(5));
        tail.ended(1);
        for position in [1, 2] {
            assert_eq!(tail.end(known(5, position), false), Some(1), "{position}");
        }
        tail.took(1);
        assert_eq!(tail.end(known(6, 2), false), Some(6));
    }
}
