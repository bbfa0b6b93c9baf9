//! When transactions end, and how.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;

use eos_core::spi::State;

use super::TestDriver;
use super::dying::panic_if_ended;
use eos_broker::faults::{Act, Rule, RuleId};

impl TestDriver {
    /// From here on nothing is committed before [`commit`](Self::commit): what is piped joins the open
    /// transaction of its worker, and no reader sees its outputs. What goes through a repartition topic waits
    /// there, as it does in Kafka: its other side reads what is committed.
    ///
    /// A transaction is committed all the same where the runtime has to: before its tasks move, before a record
    /// is tried again, and after 10 minutes of [`advance_wall_clock`](Self::advance_wall_clock).
    pub fn hold(&mut self) {
        self.holds = true;
    }

    /// What is open is committed, and from here on everything is that is piped.
    ///
    /// # Panics
    /// If the app ends with an error.
    #[track_caller]
    pub fn release(&mut self) {
        self.holds = false;
        self.go_or_panic();
    }

    /// Commits what is open, and what follows from it behind repartition topics.
    ///
    /// # Panics
    /// If the app ends with an error.
    #[track_caller]
    pub fn commit(&mut self) {
        let went = self.go_on(true);
        panic_if_ended(went);
    }

    /// The open transaction is aborted: its offsets are refused by the broker. The app takes its records
    /// again by itself, into another transaction.
    ///
    /// # Panics
    /// If none is open: pipe something after [`hold`](Self::hold). If the app ends with an error.
    #[track_caller]
    pub fn abort(&mut self) {
        let open = self.workers().filter(|it| it.state() == State::Open);
        let open = open.count() as u64;
        assert!(
            open > 0,
            "abort(): no transaction is open, since what is piped is committed at once. Call `hold()` before, or \
             `abort_next()` instead"
        );
        let id = self.refuse_offsets(open);
        self.commit_open();
        let went = self.until(|driver| driver.cluster.broker(|it| it.fired(id)) == open);
        panic_if_ended(went);
        self.cluster.broker(|broker| broker.remove_fault(id));
        self.go_or_panic();
    }

    /// The next transaction that is to be committed is aborted instead, once: its offsets are refused by the
    /// broker. The app takes its records again by itself.
    pub fn abort_next(&mut self) {
        self.refuse_offsets(1);
    }

    fn refuse_offsets(&self, times: u64) -> RuleId {
        let refuse = Act::Refuse(ResponseError::UnknownServerError);
        let rule = Rule::on(ApiKey::TxnOffsetCommit, refuse).times(times);
        self.cluster.broker(|broker| broker.add_fault(rule))
    }
}
