//! Checks before a record runs.

use std::sync::Arc;

use eos_protocol::{TaskId, Timestamp};

use super::policy::aborts;
use super::processed::Processed;
use super::{Done, Pipeline};
use crate::Guarantee;
use crate::client::Client;
use crate::dedup::IdentityError;
use crate::failure::Failure;
use crate::rules;
use crate::topology::Fault;
use crate::worker::RecordsOf;
use crate::worker::future_timestamps::between;
use crate::worker::shared::Shared;
use crate::worker::task::Task;
use crate::worker::transaction::TransactionDriver;

impl Pipeline {
    /// Returns the result of the turn for a record that must not run, or `None` if the record may run. A record must
    /// not run if it is not claimed yet, if its task is paused, if its key is parked, if it is known to abort its
    /// transactions, or if its timestamp is too far ahead.
    #[inline(always)]
    pub(super) fn decided_early<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        record: &Processed,
        txn: &mut TransactionDriver<C>,
    ) -> Option<Done> {
        let may_be_ahead = record.timestamp.is_some_and(|time| time > self.not_ahead)
            && shared.topology.refuses_future(record.task.stage).is_some();
        // Nearly all records.
        if shared.spec.guarantee != Guarantee::AtMostOnce
            && task.pauses.is_empty()
            && task.parked.is_none()
            && task.own_moments.is_none()
            && !txn.blame.has_culprits()
            && !may_be_ahead
        {
            return None;
        }
        self.decide_early(shared, task, *record, txn)
    }

    #[inline(never)]
    fn decide_early<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        record: Processed,
        txn: &mut TransactionDriver<C>,
    ) -> Option<Done> {
        let (input, offset) = record.record()?;
        if shared.spec.guarantee == Guarantee::AtMostOnce
            && !(txn.is_open() && task.progress.is_claimed(input, offset))
            && rules::claims_before_processing()
        {
            self.unclaimed = true;
            return Some(Done::Dry);
        }
        if !task.pauses.is_empty() || task.parked.is_some() {
            let paused = self.meets_record(shared, task, record, txn);
            let done = paused.or_else(|| self.arrives(shared, task, record, txn));
            if done.is_some() {
                return done;
            }
        }
        let from = task.progress.inputs().get(input)?;
        if txn.blame.is_culprit(&from.partition, offset) {
            return Some(self.condemn(shared, task, record, aborts(txn), txn));
        }
        let place = (from.partition.clone(), offset);
        if let Some(fault) = self.future_fault(shared, task.progress.task, record.timestamp) {
            // The policy of the first source of the topic decides.
            return Some(self.refused(shared, task, record, 0, fault, txn));
        }
        self.next_own_moment(shared, task, record, place, txn)
    }

    /// Returns the fault of a record that is far ahead of the machine's clock, in a stage that refuses such records. If
    /// stream time jumped, all windows would close, and all current records would be late.
    fn future_fault<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: TaskId,
        time: Option<Timestamp>,
    ) -> Option<Fault> {
        let time = time.filter(|time| *time > self.not_ahead)?;
        let store = shared.topology.refuses_future(task.stage)?;
        let limit = shared.spec.most_ahead?;
        let now = shared.env.wall_clock();
        let ms = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        self.not_ahead = Timestamp(now.0.saturating_add(ms));
        (time > self.not_ahead).then(|| {
            Fault::User(Failure::permanent(IdentityError::FutureTimestamp {
                store: Arc::clone(store),
                time,
                ahead: between(now, time),
                limit,
            }))
        })
    }
}
