//! Letters that this start of the replay can't write.

use std::collections::BTreeMap;
use std::fmt;

use eos_protocol::letter::LetterError;

/// The reason why a stored letter waits for another start of the replay.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// The replay does not write to the topic of origin.
    Topic,
    /// The topic of origin has too few partitions.
    Partition,
    /// The record would be larger than its topic accepts.
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The row can't be read.
    Row(String),
}

impl From<LetterError> for Why {
    fn from(error: LetterError) -> Self {
        Self::Row(error.to_string())
    }
}

/// Letters of one topic that wait for the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StuckLetters {
    pub(super) topic: String,
    pub(super) why: Why,
    pub(super) letters: u64,
}

impl fmt::Display for StuckLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            topic,
            why,
            letters,
        } = self;
        write!(
            f,
            "this replay can't write {letters} waiting letters of the topic {topic}. "
        )?;
        match why {
            Why::Topic => write!(f, "Add `.to({topic:?})` to the replay"),
            Why::Partition => write!(
                f,
                "Their partition of origin does not exist. Give {topic} as many partitions as it had"
            ),
            Why::TooLarge { limit } => write!(
                f,
                "With the headers of the replay, they are larger than max.message.bytes = {limit}. Raise the limit of \
                 {topic}, and start the replay again"
            ),
            Why::Row(error) => write!(f, "The reason: {error}"),
        }
    }
}

/// The letters of a task that are stuck in this start.
///
/// A round reads rows again, after an abort or if a letter arrives before them. Rows are read in order at first, so each one
/// is counted at most once. A stuck letter that arrives before counted ones is not counted.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    /// The last row that is counted.
    counted: Vec<u8>,
    letters: BTreeMap<(String, Why), u64>,
    /// The numbers of letters in the last warnings.
    warned: BTreeMap<(String, Why), u64>,
}

impl Stuck {
    /// Counts a letter.
    pub(super) fn count(&mut self, row_key: &[u8], topic: String, why: Why) {
        if *row_key > self.counted[..] {
            self.counted = row_key.to_vec();
            *self.letters.entry((topic, why)).or_default() += 1;
        }
    }

    /// Returns the new warnings after all rows have been read: once for each topic and reason, and again when the
    /// number of letters has doubled.
    pub(super) fn new_warnings(&mut self) -> Vec<StuckLetters> {
        let mut new = Vec::new();
        for (of, letters) in &self.letters {
            let warned = self.warned.entry(of.clone()).or_default();
            if *letters >= (2 * *warned).max(1) {
                *warned = *letters;
                let (topic, why) = of.clone();
                new.push(StuckLetters {
                    topic,
                    why,
                    letters: *letters,
                });
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stuck_letter_is_counted_once_and_logged_once() {
        let mut stuck = Stuck::default();
        for row in [b"a", b"b", b"a", b"b", b"c"] {
            stuck.count(row, "gone".to_owned(), Why::Topic);
        }
        stuck.count(b"d", "orders".to_owned(), Why::Partition);
        stuck.count(b"e", "orders".to_owned(), LetterError::Format(9).into());
        let told = stuck.new_warnings();
        let told: Vec<_> = told.iter().map(ToString::to_string).collect();
        let begin = "this replay can't write 3 waiting letters of the topic";
        let [gone, partition, format] = &told[..] else {
            panic!("{told:?}");
        };
        let expected = "gone. Add `.to(\"gone\")` to the replay";
        assert_eq!(*gone, format!("{begin} {expected}"));
        assert!(partition.contains("orders") && partition.contains("partitions"));
        assert!(format.contains("format 9") && format.contains("newest version"));
        assert!(stuck.new_warnings().is_empty());
    }
}
