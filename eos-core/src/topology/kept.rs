//! The retention and the cost of stores.

use std::fmt;
use std::time::Duration;

use eos_protocol::TopicName;
use eos_protocol::identity::Sizing;
use eos_protocol::windows::AnyWindows;

use super::describe::Description;
use super::graph::Graph;
use crate::store::StoreSpec;

/// A store whose retention is shorter than this part of the longest one of its stage is worth a warning.
const SHORT: u32 = 4;
/// A record in more windows than this is worth a warning: it reads and writes a row for each.
const MANY_WINDOWS: i64 = 64;

/// The rows of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    store: String,
    changelog: TopicName,
    /// The retention of windows, if rows have any.
    retention: Option<Duration>,
    /// What an id costs, if it is a deduplication store.
    ids: Option<String>,
    /// The store of the same stage with the longest retention, if it is much longer.
    longer: Option<(String, Duration)>,
    /// The number of windows of a record, if there are many.
    windows: Option<i64>,
}

impl Description {
    /// Returns for each store how long it keeps rows, its changelog, and for a deduplication store the cost of an id.
    ///
    /// ```
    /// # use eos_core::identity::SeenIds;
    /// # use eos_core::{App, Topic};
    /// # use std::time::Duration;
    /// let mut app = App::new("payments");
    /// app.source(&Topic::<String, String>::plain("in"))
    ///     .dedup(&SeenIds::fixed("seen", Duration::from_secs(300)))
    ///     .by(String::clone)
    ///     .to(&Topic::plain("out"));
    /// let stores = app.describe()?.stores().to_string();
    /// assert!(stores.starts_with("seen: kept for 750s of stream time; up to 5 reads for a new id"));
    /// # Ok::<(), eos_core::Error>(())
    /// ```
    #[must_use]
    pub fn stores(&self) -> Stores<'_> {
        Stores(self)
    }

    /// Returns what may surprise you: stores that cost more than they seem to, and sequences that may lose their order. An
    /// app logs these sentences when it starts.
    ///
    /// A stage has one changelog for all its windows. It keeps rows as long as the longest retention needs, so a
    /// deduplication of days keeps days of dead rows of windows of minutes, and each restore reads them.
    ///
    /// A record in more than 64 windows reads and writes as many rows.
    ///
    /// A repartition topic mixes partitions. Behind it, [`dedup_by_sequence`](crate::Stream::dedup_by_sequence) may drop
    /// records of a producer that several of these partitions have.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let costs = self.kept.iter().flat_map(Kept::warnings);
        costs.chain(self.mixed.iter().cloned()).collect()
    }
}

impl Kept {
    fn warnings(&self) -> impl Iterator<Item = String> + use<> {
        let windows = self.windows.map(|windows| {
            format!(
                "each record of the store {} is in {windows} windows, and reads and writes a row for each of them. Make `every(..)` \
                 longer, or the windows shorter",
                self.store
            )
        });
        self.kept_for_longer().into_iter().chain(windows)
    }

    fn kept_for_longer(&self) -> Option<String> {
        let (long, longest) = self.longer.as_ref()?;
        Some(format!(
            "the store {} keeps windows for {:?}, but its changelog {} keeps them for {longest:?}, because the store {long} of \
             the same stage needs that. Each restore reads all of them. Put a topic between the two steps, so that they are in \
             different stages",
            self.store,
            self.retention.unwrap_or_default(),
            self.changelog,
        ))
    }
}

impl Graph {
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let costs = self.kept().into_iter().flat_map(|kept| kept.warnings());
        costs.chain(self.mixed_sequences())
    }

    /// Returns the stores of all stages.
    pub(super) fn kept(&self) -> Vec<Kept> {
        let mut kept = Vec::new();
        for stage in self.stages() {
            let stores: Vec<&StoreSpec> = self.stores_of(&stage).map(|(_, store)| store).collect();
            let longest = stores.iter().filter_map(|store| retention(store)).max();
            let long = stores.iter().find(|store| retention(store) == longest);
            for store in &stores {
                let retention = retention(store);
                let longer = long.zip(longest).filter(|(_, longest)| {
                    retention.is_some_and(|it| it.saturating_mul(SHORT) < *longest)
                });
                kept.push(Kept {
                    store: store.name.to_string(),
                    changelog: TopicName::new(self.changelog_name(&stage, store.id.family())),
                    retention,
                    ids: cost_of_ids(store),
                    longer: longer.map(|(long, longest)| (long.name.to_string(), longest)),
                    windows: windows_of_a_record(store).filter(|windows| *windows > MANY_WINDOWS),
                });
            }
        }
        kept
    }
}

fn retention(store: &StoreSpec) -> Option<Duration> {
    Some(store.expiry?.retention())
}

fn windows_of_a_record(store: &StoreSpec) -> Option<i64> {
    match store.windows? {
        AnyWindows::Fixed(windows) => Some(windows.per_moment()),
        AnyWindows::Session(_) | AnyWindows::Sliding(_) => None,
    }
}

/// Returns the cost of an id, if the store has ids.
fn cost_of_ids(store: &StoreSpec) -> Option<String> {
    let kind = store.id.seen_kind(&store.name)?;
    let sizing = Sizing::new(kind, store.expiry, 1.0);
    let (row, reads) = (sizing.row_bytes(), sizing.reads_per_new_id());
    Some(format!(
        "up to {reads} reads for a new id, about {row:.0} bytes on disk for an id of 16 bytes and a key of 8"
    ))
}

/// The stores of an app, as text. Returned by [`Description::stores`].
#[derive(Debug, Clone, Copy)]
pub struct Stores<'d>(&'d Description);

impl fmt::Display for Stores<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kept in &self.0.kept {
            match kept.retention {
                Some(retention) => {
                    write!(f, "{}: kept for {retention:?} of stream time", kept.store)?;
                }
                None => write!(f, "{}: kept until deleted", kept.store)?,
            }
            if let Some(ids) = &kept.ids {
                write!(f, "; {ids}")?;
            }
            write!(f, "; changelog {}", kept.changelog)?;
            if let Some((long, longest)) = &kept.longer {
                write!(f, ", which keeps rows for {longest:?} because of {long}")?;
            }
            f.write_str("\n")?;
        }
        Ok(())
    }
}
