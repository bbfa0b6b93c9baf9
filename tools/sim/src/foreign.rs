//! Transactions of other producers in the input.

use super::remains::{Found, Undecided};
use super::topics::INPUT;
use eos_testkit::client::{Cluster, Transaction, Written};
use eos_testkit::rng::Rng;

/// A producer of transactions that stay open for seconds, one after the other.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    /// The open transaction, the time of its decision, and whether it commits.
    open: Option<(Transaction, i64, bool)>,
    all: Vec<Undecided>,
}

impl Foreign {
    pub(super) fn all(&self) -> &[Undecided] {
        &self.all
    }

    /// Writes a record in a transaction that commits later, or aborts. Returns its offset, or the broker's error.
    pub(super) fn write(
        &mut self,
        cluster: &Cluster,
        partition: i32,
        record: &Written<'_>,
        (lasts, commits): (i64, bool),
    ) -> Result<i64, i16> {
        let now = cluster.now();
        let until = now + lasts;
        let id = format!("foreign-{}", self.all.len());
        let (transaction, offset) = cluster.write_in_transaction(&id, INPUT, partition, record)?;
        self.open = Some((transaction, until, commits));
        self.all.push(Undecided {
            partition,
            from: now,
            until,
        });
        Ok(offset)
    }

    /// Returns whether no transaction is open.
    pub(super) fn is_decided(&self) -> bool {
        self.open.is_none()
    }

    /// Ends the transaction at the time of its decision, or at once.
    pub(super) fn decide(&mut self, cluster: &Cluster, at_once: bool, found: &mut Found) {
        let now = cluster.now();
        let due = |(_, until, _): &(Transaction, i64, bool)| at_once || *until <= now;
        let Some((transaction, _, commits)) = self.open.take_if(|it| due(it)) else {
            return;
        };
        if let Some(it) = self.all.last_mut() {
            it.until = now;
        }
        found.saw("other producers had open transactions", 1);
        if let Err(code) = cluster.end_transaction(&transaction, commits) {
            let wrong = format!("the transaction of another producer does not end: {code}");
            found.wrong.push(wrong);
        }
    }
}

/// Draws how long a transaction stays open, and whether it commits.
pub(super) fn drawn(rng: &mut Rng) -> (i64, bool) {
    (rng.between(500, 6_000), rng.one_in(2))
}
