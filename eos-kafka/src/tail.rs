//! The remaining records of a partition, derived from known offsets.
//!
//! librdkafka reports two offsets, and neither is the last stable offset. The *high watermark* of the last fetch
//! (`rd_kafka_get_watermark_offsets`) counts records of open transactions, also for a reader of committed records. The
//! *position* (`rd_kafka_position`) advances over transaction markers, which are never delivered. A position at the
//! high watermark determines the end at once. If an open transaction keeps the two apart, a background query returns
//! the last stable offset, and the result is valid until the watermark moves.
//!
//! `enable.partition.eof` would report it for free, but must stay off. The batch call of librdkafka 2.12.1 mistakes an
//! end of partition for a record and advances its position past it (#4844). The fetcher that continues there after a
//! rebalance skips a record.

/// The observed offsets of a partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tail {
    /// The offset after the last record taken, or the first offset to read.
    next: i64,
    /// Whether a record has arrived since reading began.
    heard: bool,
    /// The previous high watermark, which may be that of an earlier ownership.
    high_before: i64,
    /// The last stable offset in a broker's response, and the high watermark at the time of the query.
    told: Option<(i64, i64)>,
}

/// librdkafka's current offsets of a partition. Below zero: unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) high: i64,
    pub(super) position: i64,
}

/// The end of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The reader has taken all records that a reader of committed records can get.
    Here(i64),
    /// More records are available.
    Ahead(i64),
    /// The log continues, possibly only with records of open transactions.
    Unclear(i64),
    /// Unknown, because there was no response yet.
    Unknown,
}

impl Tail {
    /// Begins to read at this offset.
    pub(super) fn at(next: i64, known: Known) -> Self {
        Self {
            next,
            heard: false,
            high_before: known.high,
            told: None,
        }
    }

    /// Updates the position after a record was taken.
    pub(super) fn took(&mut self, offset: i64) {
        self.heard = true;
        self.next = offset + 1;
    }

    /// Records a broker's last stable offset. `high` is the watermark at the time of the query.
    pub(super) fn told(&mut self, stable: i64, high: i64) {
        self.told = Some((stable, high));
    }

    /// Returns the end: see [`Source::end`](eos_client::Source::end). `waiting`: fetched elements are not taken yet.
    pub(super) fn end(&self, known: Known, waiting: bool) -> End {
        let position = known.position.max(self.next);
        let at_least = |end: i64| end.max(self.next + 1);
        if waiting {
            return End::Ahead(at_least(known.high));
        }
        let fresh = self.is_fresh(known);
        match self.told {
            _ if fresh && position >= known.high => End::Here(self.next),
            Some((stable, _)) if position < stable => End::Ahead(at_least(stable)),
            Some((_, high)) if high == known.high => End::Here(self.next),
            _ if fresh => End::Unclear(at_least(known.high)),
            _ => End::Unknown,
        }
    }

    /// Returns whether the watermark dates from this reading.
    fn is_fresh(&self, known: Known) -> bool {
        known.high >= 0 && (self.heard || known.high != self.high_before)
    }

    /// See [`Source::held_back`](eos_client::Source::held_back). The last stable offset is known when all records are
    /// read, or after a query to a broker.
    pub(super) fn held_back(&self, known: Known, waiting: bool) -> Option<u64> {
        let behind = |high: i64, stable: i64| u64::try_from(high - stable).unwrap_or(0);
        if let Some(stable) = self.stable(known) {
            return (known.high >= 0).then(|| behind(known.high, stable));
        }
        // The watermark has moved since the broker's last response. That response is valid until the next one if the
        // reader still stops there: in a busy partition the watermark moves faster than brokers respond.
        let (stable, high) = self.told?;
        let stops = matches!(self.end(known, waiting), End::Unclear(_));
        let position = known.position.max(self.next);
        (stops && position == stable && high >= 0).then(|| behind(high, stable))
    }

    /// See [`Source::high_watermark`](eos_client::Source::high_watermark).
    pub(super) fn high(&self, known: Known) -> Option<i64> {
        let confirmed = self.told.is_some_and(|(_, high)| high == known.high);
        (known.high >= 0 && (confirmed || self.is_fresh(known))).then_some(known.high)
    }

    /// See [`Source::drained`](eos_client::Source::drained).
    pub(super) fn drained(&self, known: Known, waiting: bool) -> Option<i64> {
        match self.end(known, waiting) {
            End::Here(_) => self.stable(known),
            _ => None,
        }
    }

    /// Returns the last stable offset, if the position shows it.
    fn stable(&self, known: Known) -> Option<i64> {
        match self.told {
            _ if self.is_fresh(known) && known.position.max(self.next) >= known.high => {
                Some(known.high)
            }
            Some((stable, high)) if high == known.high => Some(stable),
            _ => None,
        }
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
    fn nothing_is_known_before_the_first_response() {
        let tail = Tail::at(5, known(NEVER, NEVER));
        assert_eq!(tail.end(known(NEVER, NEVER), false), End::Unknown);
        assert_eq!(tail.end(known(9, NEVER), false), End::Unclear(9));
        // Offsets of an earlier ownership are not valid now.
        let mut tail = Tail::at(9, known(7, NEVER));
        assert_eq!(tail.end(known(7, NEVER), false), End::Unknown);
        tail.told(9, 7);
        assert_eq!(tail.end(known(7, NEVER), false), End::Here(9));
        tail.told(12, 7);
        assert_eq!(tail.end(known(7, NEVER), false), End::Ahead(12));
    }

    #[test]
    fn the_end_is_settled_as_soon_as_the_last_record_is_taken() {
        let mut tail = Tail::at(0, known(NEVER, NEVER));
        tail.took(0);
        assert_eq!(tail.end(known(2, 1), false), End::Unclear(2));
        tail.took(1);
        assert_eq!(tail.end(known(2, 2), false), End::Here(2));
        assert_eq!(tail.end(known(2, 2), true), End::Ahead(3));
    }

    #[test]
    fn what_is_held_back_is_known_once_everything_was_passed_or_a_broker_was_asked() {
        let mut tail = Tail::at(0, known(NEVER, NEVER));
        let held_back = |tail: &Tail, known| tail.held_back(known, false);
        assert_eq!(held_back(&tail, known(NEVER, NEVER)), None);
        tail.took(0);
        assert_eq!(held_back(&tail, known(5, 1)), None, "some may be stable");
        assert_eq!(held_back(&tail, known(2, 2)), Some(0), "a marker, passed");
        tail.told(1, 5);
        assert_eq!(held_back(&tail, known(5, 1)), Some(4));
        tail.told(9, 9);
        assert_eq!(held_back(&tail, known(9, 1)), Some(0));
    }

    #[test]
    fn what_is_held_back_stays_known_while_more_is_written_behind_it() {
        let mut tail = Tail::at(0, known(NEVER, NEVER));
        tail.took(0);
        tail.told(1, 5);
        assert_eq!(
            tail.held_back(known(9, 1), false),
            Some(4),
            "as of the response"
        );
        assert_eq!(tail.held_back(known(9, 1), true), None, "reading goes on");
        assert_eq!(tail.held_back(known(9, 2), false), None, "it went on");
        tail.told(1, 9);
        assert_eq!(tail.held_back(known(9, 1), false), Some(8));
    }

    #[test]
    fn the_high_watermark_is_that_of_this_reading() {
        let mut tail = Tail::at(5, known(7, NEVER));
        assert_eq!(tail.high(known(NEVER, NEVER)), None);
        assert_eq!(tail.high(known(7, NEVER)), None, "of before, maybe");
        assert_eq!(tail.high(known(9, NEVER)), Some(9));
        tail.told(5, 7);
        assert_eq!(tail.high(known(7, 5)), Some(7), "a broker was asked since");
        tail.took(5);
        assert_eq!(tail.high(known(7, 6)), Some(7));
    }

    #[test]
    fn a_marker_at_the_end_is_nothing_to_wait_for() {
        let mut tail = Tail::at(0, known(NEVER, NEVER));
        tail.took(0);
        assert_eq!(tail.end(known(2, 1), false), End::Unclear(2), "a record?");
        assert_eq!(tail.end(known(2, 2), false), End::Here(1), "passed");
        assert_eq!(tail.drained(known(2, 2), false), Some(2), "the marker too");
        assert_eq!(tail.drained(known(2, 2), true), None, "something came");
        assert_eq!(tail.drained(known(2, 1), false), None);
    }

    #[test]
    fn records_of_an_open_transaction_are_nothing_to_wait_for_until_they_are_committed() {
        let mut tail = Tail::at(0, known(NEVER, NEVER));
        tail.took(0);
        assert_eq!(tail.end(known(5, 1), false), End::Unclear(5));
        tail.told(1, 5);
        assert_eq!(tail.end(known(5, 1), false), End::Here(1));
        assert_eq!(
            tail.drained(known(5, 1), false),
            Some(1),
            "not the open one"
        );
        assert_eq!(tail.end(known(6, 1), false), End::Unclear(6), "the marker?");
        tail.took(1);
        assert_eq!(tail.end(known(6, 2), false), End::Unclear(6));
    }
}
