//! The decisions of exactly-once stream processing on Kafka.
//!
//! The crate contains the vocabulary and every decision, as pure functions.
//!
//! Decide, then do: this crate takes events and returns actions. It reads no clock, starts no thread, draws no random
//! number, logs nothing and depends on no Kafka client. Each rule of the protocol is therefore a test that runs in
//! microseconds. The worker in `eos-core` performs the actions and reports their results.
//!
//! | module | decides |
//! |---|---|
//! | [`Transaction`] | the next action with the producer: twelve states, one transaction at a time |
//! | [`TaskProgress`] | which offsets a transaction carries, to which offsets a rewind seeks |
//! | [`TransactionName`] | the content of a committed offset's metadata |
//! | [`plan_start`] | where a task starts, or why it must not |
//! | [`plan_revocation`] | the steps before partitions are returned |
//! | [`outcome`] | how a transaction in doubt ended |
//! | [`classify`] | the reaction to an error code |
//! | [`BacklogTurns`] | which tasks with a backlog take records in a transaction |
//! | [`CommitPolicy`] | when to commit |
//! | [`CommitPacer`] | how soon to commit, from the cost of commits |
//! | [`CommitSize`] | how many records to commit at once, if commits take long |
//! | [`may_join`] | whether a transaction outlives a slow record |
//! | [`Isolation`] | which record keeps aborting its transaction |
//! | [`RetryPlan`] | when a record that failed is tried again |
//! | [`Pause`] | when a paused task stands still, and when it continues |
//! | [`DeadLetter`] | the headers of a dead letter |
//! | [`sequence`] | whether a record waits behind a dead letter of its key |
//! | [`letter`] | the decision about a dead letter that waits for its replay |
//! | [`replay_round`] | which of the waiting letters a round of the replay reads |
//! | [`Merge`] | which input of a task supplies the next record |
//! | [`stages`] | which sources belong together |
//! | [`check_widths`] | whether their topics can be read together |
//! | [`recommit_due`] | when an idle task's offsets are committed again |
//! | [`windows`] | the window of a record, when it closes, when it expires |
//! | [`foreign`] | the subscriptions of a foreign-key join, and which answer counts |
//! | [`calls`] | which asynchronous call starts, whether its result counts, which record is next |
//! | [`identity`] | whether the id of a record was seen before |
//! | [`MissingOffsets`] | when a missing offset of the group is confirmed |
//! | [`CoordinatorWait`] | when a call that waits for a coordinator needs a reconnect |
//! | [`BrokerTime`] | for how long brokers have been reachable |
//! | [`state`] | the position of a task's stores, and the decision at a restart |
//! | [`views`] | where the rows of a key are, and whether a database has the effects of a record |
//! | [`partition_for`] | which partition a key belongs to |
#![forbid(unsafe_code)]

mod backlog;
mod backoff;
mod broker_time;
pub mod calls;
mod commit_pacer;
mod commit_policy;
mod commit_size;
mod coordinator_wait;
pub mod dead_letter;
mod due;
mod errors;
mod fields;
mod fnv;
pub mod foreign;
pub mod global;
mod guarantee;
mod halving;
pub mod identity;
mod idle;
mod ids;
mod item_name;
pub mod joins;
pub mod ledger;
pub mod letter;
mod markers;
mod membership;
mod merge;
mod mirror;
mod missing;
mod name;
mod outcome;
mod partitioner;
mod pause;
mod progress;
mod rebalance;
pub mod recommit;
pub mod reorder;
pub mod replay_round;
mod retry;
pub mod sequence;
mod stages;
mod start;
pub mod state;
mod time;
pub mod topics;
mod transaction;
pub mod views;
mod widths;
pub mod windows;

pub use backlog::{BacklogTurns, DryStep, TaskTurn};
pub use backoff::Backoff;
pub use broker_time::{BrokerTime, Moment};
pub use commit_pacer::{CommitCost, CommitPacer};
pub use commit_policy::{CommitCause, CommitPolicy, Load, Pace, may_join};
pub use commit_size::CommitSize;
pub use coordinator_wait::{CoordinatorWait, Traffic};
pub use dead_letter::DeadLetter;
pub use due::{Clock, Place, Round};
pub use errors::{CallSite, Calls, ErrorClass, Fault, Row, TABLE, blames_a_record, classify, code};
pub use guarantee::Guarantee;
pub use halving::{Isolation, Taken};
pub use idle::IdleTime;
pub use ids::{
    AppId, Generation, InstanceId, Negative, Nonce, Offset, Partition, ProducerEpoch, Seq, StageId,
    TaskId, Timestamp, TopicName, TopicPartition, TransactionalId, WorkerId,
};
pub use item_name::ItemName;
pub use markers::until_markers_are_written;
pub use membership::{NotAMember, checked_membership};
pub use merge::{BadMaxIdle, Lag, MaxIdle, Merge, Pick, Supply};
pub use mirror::{FirstPositionError, first_position, mirror_metadata};
pub use missing::MissingOffsets;
pub use name::{LayoutHash, NameError, TransactionName};
pub use outcome::{Outcome, outcome};
pub use partitioner::{murmur2, partition_for};
pub use pause::{Met, Pause, PausePlace, Verdict};
pub use progress::{Admission, Input, OutOfOrder, START_STEP, TaskProgress};
pub use rebalance::{Revocation, Settle, plan_revocation};
pub use recommit::recommit_due;
pub use retry::{Attempt, RetryPlan};
pub use stages::{Stage, stages, subscription};
pub use start::{Committed, FirstStart, Situation, Start, StartError, plan_start};
pub use time::{Deadline, Now};
pub use topics::{SeenTopic, TopicChange, TopicChanged, TopicGrown, TopicRole, TopicWatch};
pub use transaction::{Action, Actions, Event, Limits, State, StopReason, Transaction};
pub use widths::{Counts, UnequalWidths, check_widths};
