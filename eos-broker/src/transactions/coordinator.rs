//! The decisions of the coordinator.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError as Error;

use super::state::{LAST_EPOCH, Participant, State, Transaction};

/// A producer's identity after InitProducerId.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Initialized {
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
}

/// The markers of a decided transaction, which are to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Markers {
    pub(crate) transactional_id: String,
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    pub(crate) commit: bool,
    pub(crate) participants: Vec<Participant>,
}

/// A result, and the markers that must be written for it.
pub(crate) type Decided<T> = (Result<T, Error>, Option<Markers>);

/// All transactional ids, and the assigned producer ids.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    by_id: BTreeMap<String, Transaction>,
    next_producer_id: i64,
}

impl Transactions {
    /// Returns a coordinator that assigns producer ids from this one on.
    pub(crate) fn beginning_with(next_producer_id: i64) -> Transactions {
        Transactions {
            next_producer_id,
            ..Transactions::default()
        }
    }

    /// Returns a producer id that was never used.
    pub(crate) fn new_producer_id(&mut self) -> i64 {
        self.next_producer_id += 1;
        self.next_producer_id - 1
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Transaction> {
        self.by_id.get(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Transaction)> {
        self.by_id.iter()
    }

    /// Handles InitProducerId: assigns a new epoch to its owner. The previous owner is fenced.
    ///
    /// An open transaction is aborted first, and the caller receives a retriable error.
    pub(crate) fn init(
        &mut self,
        id: &str,
        timeout_ms: i32,
        expected: Option<(i64, i16)>,
    ) -> Decided<Initialized> {
        if !self.by_id.contains_key(id) {
            let producer_id = self.new_producer_id();
            let fresh = Transaction {
                state: State::Empty,
                producer_id,
                epoch: -1,
                last_epoch: -1,
                previous_id: -1,
                timeout_ms,
                participants: Default::default(),
                started: -1,
            };
            self.by_id.insert(id.to_owned(), fresh);
        }
        let next_id = self.next_producer_id;
        let Some(transaction) = self.by_id.get_mut(id) else {
            return (Err(Error::UnknownServerError), None);
        };
        let is_known = expected.is_none_or(|(producer_id, epoch)| {
            transaction.epoch == -1
                || producer_id == transaction.producer_id
                || (producer_id == transaction.previous_id && epoch >= LAST_EPOCH)
        });
        if !is_known {
            return (Err(Error::ProducerFenced), None);
        }
        match transaction.state {
            State::PrepareCommit | State::PrepareAbort => {
                (Err(Error::ConcurrentTransactions), None)
            }
            State::Ongoing => {
                let markers = fence(id, transaction);
                (Err(Error::ConcurrentTransactions), Some(markers))
            }
            State::Empty | State::CompleteCommit | State::CompleteAbort => {
                let current = transaction.epoch;
                let asked_by_owner = expected.is_none_or(|(_, epoch)| epoch == current);
                // The owner from before the fence. No producer is assigned the epoch that fenced it.
                let fenced_owner = current > LAST_EPOCH
                    && expected.is_some_and(|(_, epoch)| epoch == transaction.last_epoch);
                let rotates = transaction.is_exhausted() && asked_by_owner || fenced_owner;
                let bumped = match expected {
                    _ if rotates => {
                        transaction.previous_id = transaction.producer_id;
                        transaction.producer_id = next_id;
                        self.next_producer_id += 1;
                        Some((0, expected.map_or(-1, |(_, epoch)| epoch)))
                    }
                    None => Some((transaction.epoch + 1, -1)),
                    Some((_, epoch)) if transaction.epoch == -1 || epoch == transaction.epoch => {
                        Some((transaction.epoch + 1, epoch))
                    }
                    // The response to its last bump was lost.
                    Some((_, epoch)) if epoch == transaction.last_epoch => {
                        Some((transaction.epoch, transaction.last_epoch))
                    }
                    Some(_) => None,
                };
                let Some((epoch, last_epoch)) = bumped else {
                    return (Err(Error::ProducerFenced), None);
                };
                transaction.epoch = epoch;
                transaction.last_epoch = last_epoch;
                transaction.timeout_ms = timeout_ms;
                transaction.state = State::Empty;
                transaction.started = -1;
                transaction.participants.clear();
                let initialized = Initialized {
                    producer_id: transaction.producer_id,
                    epoch,
                };
                (Ok(initialized), None)
            }
        }
    }

    /// Handles AddPartitionsToTxn and AddOffsetsToTxn.
    pub(crate) fn add(
        &mut self,
        id: &str,
        producer_id: i64,
        epoch: i16,
        participants: Vec<Participant>,
        now: i64,
    ) -> Result<(), Error> {
        let transaction = self.of(id)?;
        if transaction.producer_id != producer_id {
            return Err(Error::InvalidProducerIdMapping);
        }
        if transaction.epoch != epoch {
            return Err(Error::ProducerFenced);
        }
        if transaction.state.is_prepared() {
            return Err(Error::ConcurrentTransactions);
        }
        if transaction.state != State::Ongoing {
            transaction.participants.clear();
            transaction.state = State::Ongoing;
            transaction.started = now;
        }
        transaction.participants.extend(participants);
        Ok(())
    }

    /// Handles EndTxn.
    pub(crate) fn end(
        &mut self,
        id: &str,
        producer_id: i64,
        epoch: i16,
        commit: bool,
    ) -> Decided<()> {
        let transaction = match self.of(id) {
            Ok(transaction) => transaction,
            Err(error) => return (Err(error), None),
        };
        if transaction.producer_id != producer_id {
            return (Err(Error::InvalidProducerIdMapping), None);
        }
        if transaction.epoch != epoch {
            return (Err(Error::ProducerFenced), None);
        }
        let answer = match (transaction.state, commit) {
            (State::Ongoing, _) => {
                let markers = prepare(id, transaction, commit);
                return (Ok(()), Some(markers));
            }
            // A repeated request, whose first response was lost.
            (State::CompleteCommit, true) | (State::CompleteAbort, false) => Ok(()),
            (State::PrepareCommit, true) | (State::PrepareAbort, false) => {
                Err(Error::ConcurrentTransactions)
            }
            _ => Err(Error::InvalidTxnState),
        };
        (answer, None)
    }

    /// Returns whether a participant belongs to the open transaction. Brokers verify this before they append the first
    /// batch of a transaction to a partition.
    pub(crate) fn verify(
        &self,
        id: &str,
        producer_id: i64,
        epoch: i16,
        participant: &Participant,
    ) -> Result<(), Error> {
        let transaction = self.by_id.get(id);
        let transaction = transaction.ok_or(Error::InvalidProducerIdMapping)?;
        if transaction.producer_id != producer_id {
            return Err(Error::InvalidProducerIdMapping);
        }
        if transaction.epoch != epoch {
            return Err(Error::InvalidProducerEpoch);
        }
        if transaction.state.is_prepared() {
            return Err(Error::ConcurrentTransactions);
        }
        let open = transaction.state == State::Ongoing;
        if open && transaction.participants.contains(participant) {
            Ok(())
        } else {
            Err(Error::InvalidTxnState)
        }
    }

    /// Aborts transactions that were open for too long, and fences their producers.
    pub(crate) fn expire(&mut self, now: i64) -> Vec<Markers> {
        let overdue = self.by_id.iter_mut().filter(|(_, transaction)| {
            transaction.state == State::Ongoing
                && transaction.started + i64::from(transaction.timeout_ms) <= now
        });
        overdue
            .map(|(id, transaction)| fence(id, transaction))
            .collect()
    }

    /// Returns the time at which the next transaction times out.
    pub(crate) fn next_expiry(&self) -> Option<i64> {
        let open = self.by_id.values().filter(|it| it.state == State::Ongoing);
        open.map(|it| it.started + i64::from(it.timeout_ms)).min()
    }

    /// Notes that a participant has its marker. The last marker completes the transaction.
    pub(crate) fn marked(&mut self, id: &str, participant: &Participant) {
        let Some(transaction) = self.by_id.get_mut(id) else {
            return;
        };
        transaction.participants.remove(participant);
        self.complete(id);
    }

    /// Completes a decided transaction that waits for no markers.
    pub(crate) fn complete(&mut self, id: &str) {
        let Some(transaction) = self.by_id.get_mut(id) else {
            return;
        };
        if !transaction.participants.is_empty() {
            return;
        }
        match transaction.state {
            State::PrepareCommit => transaction.state = State::CompleteCommit,
            State::PrepareAbort => transaction.state = State::CompleteAbort,
            _ => return,
        }
        transaction.started = -1;
    }

    fn of(&mut self, id: &str) -> Result<&mut Transaction, Error> {
        if id.is_empty() {
            return Err(Error::InvalidRequest);
        }
        let known = self.by_id.get_mut(id);
        known.ok_or(Error::InvalidProducerIdMapping)
    }
}

/// Aborts a transaction under the next epoch, so that its producer is fenced.
fn fence(id: &str, transaction: &mut Transaction) -> Markers {
    // The owner may still request the new epoch by naming the old one (KIP-588). Unless another producer requested the
    // new epoch first, there was no other owner in between.
    transaction.last_epoch = transaction.epoch;
    transaction.epoch = transaction.epoch.saturating_add(1);
    prepare(id, transaction, false)
}

fn prepare(id: &str, transaction: &mut Transaction, commit: bool) -> Markers {
    transaction.state = if commit {
        State::PrepareCommit
    } else {
        State::PrepareAbort
    };
    Markers {
        transactional_id: id.to_owned(),
        producer_id: transaction.producer_id,
        epoch: transaction.epoch,
        commit,
        participants: transaction.participants.iter().cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(number: i32) -> Participant {
        Participant::Partition("t".into(), number)
    }

    /// Returns a coordinator with the id "x" at producer id 0, epoch 0.
    fn begun() -> Transactions {
        let mut all = Transactions::default();
        let (first, none) = all.init("x", 1_000, None);
        assert_eq!(
            (first, none),
            (
                Ok(Initialized {
                    producer_id: 0,
                    epoch: 0
                }),
                None
            )
        );
        all
    }

    fn written(all: &mut Transactions, markers: &Markers) {
        for participant in &markers.participants {
            all.marked(&markers.transactional_id, participant);
        }
        all.complete(&markers.transactional_id);
    }

    fn state(all: &Transactions) -> State {
        all.get("x").expect("known").state
    }

    #[test]
    fn each_init_bumps_the_epoch_and_fences_the_one_before() {
        let mut all = begun();
        let (second, _) = all.init("x", 1_000, None);
        assert_eq!(second.map(|it| (it.producer_id, it.epoch)), Ok((0, 1)));
        let late = all.add("x", 0, 0, vec![partition(0)], 0);
        assert_eq!(late, Err(Error::ProducerFenced));
        assert_eq!(all.end("x", 0, 0, true).0, Err(Error::ProducerFenced));
        let (other, _) = all.init("y", 1_000, None);
        assert_eq!(other.map(|it| it.producer_id), Ok(1));
    }

    #[test]
    fn a_commit_completes_with_its_last_marker() {
        let mut all = begun();
        let both = vec![partition(0), Participant::Group("g".into())];
        all.add("x", 0, 0, both.clone(), 5).expect("added");
        assert_eq!(all.next_expiry(), Some(1_005));
        let (done, markers) = all.end("x", 0, 0, true);
        assert_eq!(done, Ok(()));
        let markers = markers.expect("markers");
        assert_eq!((markers.commit, markers.epoch), (true, 0));
        assert_eq!(state(&all), State::PrepareCommit);
        // Meanwhile all requests must wait, and the opposite outcome is rejected.
        let busy = Err(Error::ConcurrentTransactions);
        assert_eq!(all.add("x", 0, 0, both, 6), busy);
        assert_eq!(all.end("x", 0, 0, true).0, busy);
        assert_eq!(all.end("x", 0, 0, false).0, Err(Error::InvalidTxnState));
        assert_eq!(all.init("x", 1, None).0, Err(Error::ConcurrentTransactions));
        all.marked("x", &markers.participants[0]);
        assert_eq!(state(&all), State::PrepareCommit);
        all.marked("x", &markers.participants[1]);
        assert_eq!(state(&all), State::CompleteCommit);
        // A repeated EndTxn is still a commit.
        assert_eq!(all.end("x", 0, 0, true), (Ok(()), None));
        assert_eq!(all.end("x", 0, 0, false).0, Err(Error::InvalidTxnState));
        assert_eq!(all.next_expiry(), None);
    }

    #[test]
    fn an_empty_transaction_cannot_end() {
        let mut all = begun();
        for commit in [true, false] {
            let refused = Err(Error::InvalidTxnState);
            assert_eq!(all.end("x", 0, 0, commit).0, refused);
        }
        let unknown = Err(Error::InvalidProducerIdMapping);
        assert_eq!(all.end("unknown", 0, 0, true).0, unknown);
        assert_eq!(all.end("x", 9, 0, true).0, unknown);
    }

    #[test]
    fn init_over_an_open_transaction_aborts_it_under_a_new_epoch() {
        let mut all = begun();
        all.add("x", 0, 0, vec![partition(0)], 0).expect("added");
        let (again, markers) = all.init("x", 1_000, None);
        assert_eq!(again, Err(Error::ConcurrentTransactions));
        let markers = markers.expect("aborted");
        assert_eq!((markers.commit, markers.epoch), (false, 1));
        assert_eq!(all.end("x", 0, 0, true).0, Err(Error::ProducerFenced));
        written(&mut all, &markers);
        assert_eq!(state(&all), State::CompleteAbort);
        let (now, _) = all.init("x", 1_000, None);
        assert_eq!(now.map(|it| it.epoch), Ok(2));
    }

    #[test]
    fn a_transaction_that_stays_open_is_aborted_and_its_producer_fenced() {
        let mut all = begun();
        all.add("x", 0, 0, vec![partition(0)], 100).expect("added");
        // Partitions that come later do not prolong it.
        all.add("x", 0, 0, vec![partition(1)], 900).expect("added");
        assert_eq!(all.expire(1_099), []);
        let aborted = all.expire(1_100);
        assert_eq!(aborted.len(), 1);
        assert_eq!((aborted[0].commit, aborted[0].epoch), (false, 1));
        assert_eq!(aborted[0].participants.len(), 2);
        assert_eq!(all.expire(1_100), []);
        written(&mut all, &aborted[0]);
        assert_eq!(all.end("x", 0, 0, true).0, Err(Error::ProducerFenced));
    }

    #[test]
    fn an_owner_bumps_its_own_epoch_and_may_repeat_the_request() {
        let mut all = begun();
        let epoch = |decided: Decided<Initialized>| decided.0.map(|it| it.epoch);
        assert_eq!(epoch(all.init("x", 1, Some((0, 0)))), Ok(1));
        assert_eq!(epoch(all.init("x", 1, Some((0, 0)))), Ok(1), "asked again");
        assert_eq!(epoch(all.init("x", 1, Some((0, 1)))), Ok(2));
        let fenced = Err(Error::ProducerFenced);
        assert_eq!(epoch(all.init("x", 1, Some((0, 0)))), fenced);
        assert_eq!(epoch(all.init("x", 1, Some((7, 2)))), fenced);
    }

    #[test]
    fn the_owner_of_a_timed_out_transaction_comes_back_unless_it_has_a_successor() {
        let epoch = |decided: Decided<Initialized>| decided.0.map(|it| it.epoch);
        for with_successor in [false, true] {
            let mut all = begun();
            all.add("x", 0, 0, vec![partition(0)], 0).expect("added");
            let aborted = all.expire(1_000);
            written(&mut all, &aborted[0]);
            if with_successor {
                assert_eq!(epoch(all.init("x", 1, None)), Ok(2));
                let late = epoch(all.init("x", 1, Some((0, 0))));
                assert_eq!(late, Err(Error::ProducerFenced));
            } else {
                assert_eq!(epoch(all.init("x", 1, Some((0, 0)))), Ok(1));
            }
        }
    }

    #[test]
    fn a_new_producer_id_follows_when_the_epochs_run_out() {
        let mut all = begun();
        all.by_id.get_mut("x").expect("known").epoch = LAST_EPOCH;
        let id = |decided: Decided<Initialized>| decided.0.map(|it| (it.producer_id, it.epoch));
        assert_eq!(id(all.init("x", 1, Some((0, LAST_EPOCH)))), Ok((1, 0)));
        let again = all.init("x", 1, Some((0, LAST_EPOCH)));
        assert_eq!(id(again), Ok((1, 0)), "its answer was lost");
        all.by_id.get_mut("x").expect("known").epoch = LAST_EPOCH;
        assert_eq!(id(all.init("x", 1, None)), Ok((2, 0)));
    }

    /// The largest epoch is for fencing only. A client with this epoch could not be fenced.
    #[test]
    fn no_producer_gets_the_epoch_reserved_for_fencing() {
        let mut all = begun();
        let id = |decided: Decided<Initialized>| decided.0.map(|it| (it.producer_id, it.epoch));
        all.by_id.get_mut("x").expect("known").epoch = LAST_EPOCH - 1;
        for _ in 0..2 {
            let lost = all.init("x", 1_000, Some((0, LAST_EPOCH - 1)));
            assert_eq!(id(lost), Ok((0, LAST_EPOCH)), "that one may be given");
        }
        all.add("x", 0, LAST_EPOCH, vec![partition(0)], 0)
            .expect("added");
        let aborted = all.expire(1_000);
        assert_eq!(aborted[0].epoch, i16::MAX);
        written(&mut all, &aborted[0]);
        for _ in 0..2 {
            let back = all.init("x", 1_000, Some((0, LAST_EPOCH)));
            assert_eq!(id(back), Ok((1, 0)));
        }
        all.add("x", 1, 0, vec![partition(0)], 0).expect("added");
        let aborted = all.expire(1_000);
        assert_eq!((aborted[0].producer_id, aborted[0].epoch), (1, 1));
        assert_eq!(all.end("x", 1, 0, true).0, Err(Error::ProducerFenced));
    }

    #[test]
    fn only_what_was_added_to_the_open_transaction_is_verified() {
        let mut all = begun();
        let verify = |all: &Transactions, number| all.verify("x", 0, 0, &partition(number));
        assert_eq!(verify(&all, 0), Err(Error::InvalidTxnState));
        all.add("x", 0, 0, vec![partition(0)], 0).expect("added");
        assert_eq!(verify(&all, 0), Ok(()));
        assert_eq!(verify(&all, 1), Err(Error::InvalidTxnState));
        let old = all.verify("x", 0, -1, &partition(0));
        assert_eq!(old, Err(Error::InvalidProducerEpoch));
        let (_, markers) = all.end("x", 0, 0, true);
        assert_eq!(verify(&all, 0), Err(Error::ConcurrentTransactions));
        written(&mut all, &markers.expect("markers"));
        assert_eq!(verify(&all, 0), Err(Error::InvalidTxnState));
    }
}
