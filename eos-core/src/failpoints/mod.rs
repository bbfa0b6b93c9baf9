//! Faults at named steps of a transaction and a rebalance, and switches that take a defence away.
//!
//! For tests only: without the cargo feature `failpoints` nothing of it is compiled, and each call
//! is an empty inlined function. With the feature but nothing armed, an app does what it always
//! does.
//!
//! Armed by the environment of a process:
//! ```sh
//! EOS_FAILPOINTS='post_offsets=error@record:150;pre_abort=crash'
//! EOS_FAILPOINTS_LOG=/tmp/fired    # a line for each that fired, written before its act
//! EOS_UNDEFENDED=quarantine
//! ```
//! or by a test, for its thread and the apps that it starts: [`Failpoints::parse`] and
//! [`Failpoints::enter`].
//!
//! One fault is `point=action`, then `@hit:n` (the n-th time that it is passed, 1 if
//! nothing is said) or `@record:n` (the first time once n records have been taken from their
//! partitions, those of aborted transactions not counted). It fires once. Faults that are due at the same step happen in the order in which they
//! are written.
//!
//! | action | does |
//! |---|---|
//! | `crash` | SIGKILL to the process itself |
//! | `freeze` | SIGSTOP to the process itself; the test sends the SIGCONT |
//! | `stall` | the worker stands still for two seconds, its client's threads go on |
//! | `error` | the step fails, as the client's call of that step can |
//! | `hang` | the thread sleeps for 20 s and then goes on |
//!
//! | point | where | `error` is |
//! |---|---|---|
//! | `poll` | a record was taken from its partition | the consumer reports that all brokers are away |
//! | `begin` | before `begin_transaction` | fenced |
//! | `first_send` | before the first output of a transaction | an abortable error; nothing is sent |
//! | `kth_send` | before each later one | the same |
//! | `pre_offsets` | before `send_offsets_to_transaction` | an abortable time-out; nothing is sent |
//! | `post_offsets` | after it | the same; but the offsets are sent |
//! | `pre_commit` | before `commit_transaction` | a retriable time-out; nothing is sent |
//! | `in_commit` | EndTxn is on its way | the same; but it is sent |
//! | `post_commit` | after it | fenced; but it is committed: in doubt |
//! | `pre_abort` | before `abort_transaction` | a retriable time-out; nothing is sent |
//! | `in_revoke` | the open transaction is to be settled before partitions go | the group fences it |
//! | `client_commit` | inside the client's `commit_transaction`, before anything is sent | a retriable time-out |
//! | `post_commit_pre_state` | the commit is known, and no database has it yet | the worker stops |
//! | `apply_begun` | the databases begin to apply the transaction | the worker stops |
//! | `apply_done` | every database has applied the transaction | the worker stops |
//! | `restore_k` | before a batch of a restore is written, the last one included | the worker stops |
//! | `pre_take_over` | before each call that raises the epochs of positions in a ledger | the ledger is not available |
//! | `taken_over` | a ledger has raised the epochs of positions, and the worker does not know their offsets yet | the ledger is not available |
//! | `held` | a transaction of a ledger is to hold a position, and has no row of it yet | an abortable error |
//!
//! | defence | without it |
//! |---|---|
//! | `quarantine` | rule 7: a producer with an unanswered request goes on |
//! | `every_touched_task` | rule 2: a transaction carries the offsets of any one task that is owned |
//! | `rewind` | rule 8: after an abort reading goes on where it was |
//! | `in_doubt` | rule 6: a commit of unknown outcome counts as aborted |
//! | `membership` | what one member owned, it goes on with as another one |
//! | `restart_table` | local state is believed, whatever the committed offsets say |
//! | `apply_after_commit` | databases take a transaction before its EndTxn is sent |
//! | `restoring` | each batch of a restore says that the database is whole |
//! | `lso_after_apply` | a database takes a changelog's LSO as it is when a transaction is applied, in the batch of that very transaction |
//! | `purge_after_commit` | records of repartition topics are done with once they are taken |
//! | `drain` | commits before everything that was sent is acknowledged |
//! | `offsets` | a transaction carries no offsets at all |
//! | `offsets_inside` | rule 11: offsets are committed through the consumer, before the transaction is |
//! | `next_offset` | the offset of the last record is committed, and not the next one |
//! | `abort_in_doubt` | rule 5: a commit that was not answered in time is aborted, by the same producer |
//! | `keep_in_doubt` | rule 6: what changed is dropped with the producer whose commit is in doubt |
//! | `dirty` | rule 6: the worker continues tasks that another owner has continued |
//! | `generation` | rule 3: the group's metadata is that of the first commit |
//! | `checked_member` | rule 3: the group's metadata is that of before the worker joined, and not looked at |
//! | `settle` | rule 4: partitions go back while the transaction that holds their records is open |
//! | `close` | tasks go on when their partitions are gone |
//! | `revoked_start` | tasks start whose partitions were revoked while their offsets were looked up |
//! | `loss` | rule 4: a loss commits what is open |
//! | `rewind_retained` | rule 4: after an abort in a rebalance the partitions that stay are not rewound |
//! | `stale_records` | rule 8: records that were fetched before a rewind are taken after it |
//! | `overlay` | what an aborted transaction changed is kept |
//! | `nonce` | attempts at the same number have the same name |
//! | `own_id` | each producer has an id of its own: a new one fences no other |
//! | `first_start` | rule 10: a task takes records before its first offset is committed |
//! | `coverage` | no worker looks for partitions without an owner |
//! | `gone` | the first answer that an offset is gone is believed |
//! | `missing` | the first report of a missing offset is believed |
//! | `foreign` | another app's records in a repartition topic count as the app's own |
//! | `ask_again` | the first answer that offsets are behind the state is believed |
//! | `count_ahead` | c > m: state that is ahead of its offsets counts as theirs |
//! | `replay` | j < k: a copy that is behind counts as exact |
//! | `interrupted` | a copy whose restore was interrupted counts as exact |
//! | `restore_to_end` | a restore ends at the LSO as it was when it began |
//! | `restore_per_task` | once one task of a worker is restored, all of them are |
//! | `heard_after_seal` | the position takes a changelog's LSO that was heard after the transaction was sealed |
//! | `stream_time` | stream time keeps the times of aborted records |
//! | `forget_over` | a database drops windows that still accept records |
//! | `trim` | the changelog of windows is trimmed regardless of their retention |
//! | `sibling_offsets` | rule 2: a transaction carries only the first input's offset of a task with several inputs |
//! | `merge_by_time` | a task with several inputs processes available records, and waits for no input |
//! | `failed_effects` | the outputs and state changes of a failed record stay |
//! | `held_back` | per-commit results include the effects of a record that waits for the next transaction |
//! | `tombstones` | deletions from a store are not written to its changelog |
//! | `apply_order` | a database applies transactions in any order |
//! | `read_in_flight` | reads ignore a committed transaction until the database has applied it |
//! | `restore_written` | a task takes records while its database writes the last restored ones |
//! | `fire_once` | a moment is not removed in the transaction of its handler's effects |
//! | `next_due` | an abort keeps the bound below which no moment comes |
//! | `into_the_past` | a moment in the past is listed before the last handled one |
//! | `cursor_inside` | the cursor of final results moves in memory, outside of the transaction |
//! | `windows_behind_cursor` | a database drops windows whose final results are not emitted yet |
//! | `dedup_key` | the scope of an id is not a part of its key |
//! | `sightings` | sightings of ids expire before the last record that can be their duplicate |
//! | `async_order` | records leave when their calls end, whatever the order of their admission |
//! | `late_result` | results of calls count for a later start or rewind of the task |
//! | `timed_ids` | ids with a time expire a bucket too early |
//! | `watermark` | a repeated record lowers the high watermark of its producer |
//! | `epoch_order` | a lower epoch of a producer begins a new sequence |
//! | `alone_and_paired` | a closed record of a join still meets partners while it is stored |
//! | `rows_of_joins` | rows of a join expire before their records went out alone |
//! | `next_visit` | a visit of a row of a join does not schedule the next visit |
//! | `last_visit` | the last visit of a row of a join decides nothing |
//! | `subtract_without_add` | a row that stays in its group is subtracted only |
//! | `old_row_first` | the row before an update of a table is read after the update |
//! | `answer_tokens` | a join by foreign key takes each answer, also one about a former reference |
//! | `newest_right` | a row that refers to another one keeps the value of its first answer |
//! | `fan_out_anew` | a change of a referenced row goes on at the cursor of the change before it |
//! | `missing_row` | a reference to a missing row gets no answer, even if the result has to change |
//! | `unsubscribe` | a row that refers to another key stays subscribed to the former one |
//! | `waiting_records` | a record that waits for its turn expires when stream time passes its moment |
//! | `paused_offset` | the offset of a paused record is committed before the decision about it |
//! | `last_letter` | a key is released before its last dead letter is processed |
//! | `letter_numbers` | a dead letter that fails again has a new number |
//! | `parked_after_abort` | after an abort, a task does not look again whether a key is parked |
//! | `parked_after_release` | after a key is released, a task takes for granted that no other key is parked |
//! | `replay_bypasses_dedup` | a replay raises the generation of a record, so that a deduplication does not know it |
//! | `other_row` | the new row of a join of two tables lacks the row of the other table |
//! | `joined_row` | a read of a join without a store lacks the row of the right table |
//! | `cogrouped_row` | a record of a cogrouped stream is added to the first result instead of the stored one |
//! | `cogrouped_changes` | joins with a cogrouped table see the changes by its first stream only |
//! | `global_start` | tasks take records before the global tables are read to their ends |
//! | `global_ends` | tasks take records once the global tables are read to their ends as of the start |
//! | `global_position` | the copy of a global table writes a position before its rows |
//! | `take_over_again` | a new session of a ledger does not take over the positions of its worker |
//! | `copies_of_positions` | the copy of a position in the consumer group is an offset to start at |
//! | `idle_evidence` | stream time of a task advances although its inputs have unread records |
//! | `tick_set` | a tick is set again as soon as the clock is behind the one before it |
//! | `expired_rows` | expired rows are deleted before the moments that still see them |
//! | `final_marks` | a record forgets which sliding windows of its key are emitted |
//! | `due_index` | a restore does not list the moments that it loads |
//! | `claim_first` | at most once: records are processed before their offset is committed |
//! | `late_attempts` | at least once: a restore takes records of former owners that arrived late |
//! | `leave_unclear` | without transactions: a worker stays in the group though its commit may still arrive |
//! | `attempt_numbers` | at least once: an attempt takes the number of a discarded one |
//!
//! The crate `fail` was not taken: its registry is one for the process, while unit tests step
//! workers on many threads and tests run several apps beside each other; it knows neither records
//! nor these actions nor a log that outlives a SIGKILL; and it brings three dependencies for what
//! is left, the counting.

mod point;
#[cfg(feature = "failpoints")]
mod scope;
#[cfg(feature = "failpoints")]
mod spec;

#[cfg(feature = "failpoints")]
pub(crate) use point::Defence;
pub(crate) use point::Point;
#[cfg(feature = "failpoints")]
pub use scope::{Entered, Failpoints};
#[cfg(feature = "failpoints")]
pub(crate) use scope::{given_back, hit, is_due, taken, undefended};
#[cfg(feature = "failpoints")]
pub use spec::Unreadable;

#[cfg(not(feature = "failpoints"))]
mod off {
    //! What is left without the feature: nothing.

    use super::Point;
    use crate::client::ClientError;

    /// What the threads of an app take over from the one that starts it.
    #[derive(Clone)]
    pub(crate) struct Failpoints;

    impl Failpoints {
        #[inline(always)]
        pub(crate) fn here() -> Self {
            Self
        }

        #[inline(always)]
        pub(crate) fn enter(&self) -> Entered {
            Entered
        }
    }

    pub(crate) struct Entered;

    #[inline(always)]
    pub(crate) fn taken() {}

    #[inline(always)]
    pub(crate) fn given_back(_: u64) {}

    #[inline(always)]
    pub(crate) fn hit(_: Point) -> Result<(), ClientError> {
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn is_due(_: Point) -> bool {
        false
    }
}
#[cfg(not(feature = "failpoints"))]
pub(crate) use off::{Failpoints, given_back, hit, is_due, taken};
