//! The commit and abort of transactions.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;

use eos_core::spi::State;

use super::TestDriver;
use super::dying::panic_if_ended;
use eos_broker::faults::{Act, Rule, RuleId};

impl TestDriver {
    /// Commits nothing until [`commit`](Self::commit): piped records join the open transaction of their worker, and
    /// no reader sees its outputs. Records in a repartition topic wait there, as in Kafka: the next stage reads only
    /// committed records.
    ///
    /// The runtime still commits where it has to: before tasks move, before a retry of a record, and after 10 minutes
    /// of [`advance_wall_clock`](Self::advance_wall_clock).
    pub fn hold(&mut self) {
        self.holds = true;
    }

    /// Commits open transactions. From here on every piped record is committed.
    ///
    /// # Panics
    /// If the app ends with an error.
    #[track_caller]
    pub fn release(&mut self) {
        self.holds = false;
        self.go_or_panic();
    }

    /// Commits open transactions, and the records that follow from them behind repartition topics.
    ///
    /// # Panics
    /// If the app ends with an error.
    #[track_caller]
    pub fn commit(&mut self) {
        let went = self.go_on(true);
        panic_if_ended(went);
    }

    /// Aborts the open transaction: the broker refuses its offsets. The app takes its records again by itself, into
    /// another transaction.
    ///
    /// # Panics
    /// If none is open: pipe a record after [`hold`](Self::hold). If the app ends with an error.
    #[track_caller]
    pub fn abort(&mut self) {
        let open = self.workers().filter(|it| it.state() == State::Open);
        let open = open.count() as u64;
        assert!(
            open > 0,
            "abort(): no transaction is open, because piped records are committed at once. Call \
             `hold()` before, or `abort_next()` instead"
        );
        let id = self.refuse_offsets(open);
        self.commit_open();
        let went = self.until(|driver| driver.cluster.broker(|it| it.fired(id)) == open);
        panic_if_ended(went);
        self.cluster.broker(|broker| broker.remove_fault(id));
        self.go_or_panic();
    }

    /// Aborts the next transaction instead of its commit, once: the broker refuses its offsets. The app takes its
    /// records again by itself.
    pub fn abort_next(&mut self) {
        self.refuse_offsets(1);
    }

    fn refuse_offsets(&self, times: u64) -> RuleId {
        let refuse = Act::Refuse(ResponseError::UnknownServerError);
        let rule = Rule::on(ApiKey::TxnOffsetCommit, refuse).times(times);
        self.cluster.broker(|broker| broker.add_fault(rule))
    }
}
