//! The choice of the database to flush under memory pressure.

/// The memory use of one database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unflushed {
    /// Bytes in memory, including those that a flush is writing.
    pub bytes: u64,
    /// Whether a flush is under way.
    pub flushing: bool,
}

/// Chooses the database to flush, if all together hold more than `limit` bytes. It is the largest one, even if its
/// last write is long ago, because its flush frees most. Returns `None` while another flush is under way: its effect
/// has to show first, and the disk has only one flush at a time.
pub fn to_flush<K>(limit: u64, databases: impl IntoIterator<Item = (K, Unflushed)>) -> Option<K> {
    let (mut sum, mut largest) = (0_u64, None::<(K, u64)>);
    for (database, unflushed) in databases {
        if unflushed.flushing {
            return None;
        }
        sum = sum.saturating_add(unflushed.bytes);
        if largest
            .as_ref()
            .is_none_or(|(_, most)| unflushed.bytes > *most)
        {
            largest = Some((database, unflushed.bytes));
        }
    }
    largest
        .filter(|_| sum > limit)
        .map(|(database, _)| database)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(limit: u64, databases: &[(u64, bool)]) -> Option<usize> {
        let databases = databases.iter().enumerate();
        let unflushed = databases.map(|(n, &(bytes, flushing))| (n, Unflushed { bytes, flushing }));
        to_flush(limit, unflushed)
    }

    #[test]
    fn the_largest_flushes_once_all_together_are_too_much() {
        assert_eq!(chosen(100, &[(10, false), (60, false), (30, false)]), None);
        let more = [(10, false), (60, false), (31, false)];
        assert_eq!(chosen(100, &more), Some(1));
        assert_eq!(chosen(0, &[]), None);
        assert_eq!(chosen(0, &[(0, false)]), None, "there is nothing to flush");
    }

    #[test]
    fn one_at_a_time() {
        assert_eq!(chosen(100, &[(90, false), (60, true)]), None);
        assert_eq!(chosen(100, &[(60, true), (90, false)]), None);
    }
}
