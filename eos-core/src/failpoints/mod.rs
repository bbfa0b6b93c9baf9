//! Faults at named steps, and switches that disable defences.
//!
//! Only tests use them. Without the cargo feature `failpoints`, each call is an empty inlined function. With the
//! feature, an app behaves as usual until a fault is armed or a defence is disabled.
//!
//! The environment of a process can arm faults:
//! ```sh
//! EOS_FAILPOINTS='post_offsets=error@record:150;pre_abort=crash'
//! EOS_FAILPOINTS_LOG=/tmp/fired    # a line for each fault that fired, written before its action
//! EOS_UNDEFENDED=quarantine
//! ```
//! A test can arm faults for its thread and the apps that the thread starts, with [`Failpoints::parse`] and
//! [`Failpoints::enter`].
//!
//! A fault is `point=action`, and perhaps a trigger. With `@hit:n`, it fires the n-th time that its point is passed.
//! With `@record:n`, it fires the first time after n records were taken from their partitions, without the records of
//! aborted transactions. The default is `@hit:1`. A fault fires once. Faults that are due at the same step fire in the
//! order of the text.
//!
//! | action | does |
//! |---|---|
//! | `crash` | SIGKILL to the process itself |
//! | `freeze` | SIGSTOP to the process itself; the test sends the SIGCONT |
//! | `stall` | the worker's thread sleeps for 2 s, while the threads of its client continue |
//! | `error` | the step fails with an error that the client can return there |
//! | `hang` | the thread sleeps for 20 s, then continues |
//!
//! | point | where | error of the action `error` |
//! |---|---|---|
//! | `poll` | a record was taken from its partition | the consumer reports that all brokers are down |
//! | `begin` | before `begin_transaction` | fenced |
//! | `first_send` | before the first output of a transaction | an abortable error; nothing is sent |
//! | `kth_send` | before each later output of a transaction | an abortable error; nothing is sent |
//! | `pre_offsets` | before `send_offsets_to_transaction` | an abortable timeout; nothing is sent |
//! | `post_offsets` | after `send_offsets_to_transaction` | an abortable timeout, although the offsets are sent |
//! | `pre_commit` | before `commit_transaction` | a retriable timeout; nothing is sent |
//! | `in_commit` | EndTxn is on its way | a retriable timeout, although EndTxn is sent |
//! | `post_commit` | after `commit_transaction` | fenced, although the transaction is committed: in doubt |
//! | `pre_abort` | before `abort_transaction` | a retriable timeout; nothing is sent |
//! | `in_revoke` | a revocation or a loss begins to settle the open transaction | the group fences the transaction |
//! | `client_commit` | inside the client's `commit_transaction`, before anything is sent | a retriable timeout |
//! | `post_commit_pre_state` | the commit is known, and no database has it yet | the worker stops |
//! | `apply_begun` | the databases begin to apply the transaction | the worker stops |
//! | `apply_done` | every database has applied the transaction | the worker stops |
//! | `restore_k` | before a batch of a restore is written, the last one included | the worker stops |
//! | `pre_take_over` | before each call that raises the epochs of positions in a ledger | the ledger is not available |
//! | `taken_over` | a ledger has raised the epochs of positions, and the worker does not know their offsets yet | the ledger is not available |
//! | `held` | a transaction of a ledger has sent the lock of a position, and has written no row of it yet | an abortable error |
//!
//! | defence | without it |
//! |---|---|
//! | `quarantine` | rule 7: a producer with an unanswered request continues |
//! | `every_touched_task` | rule 2: a transaction carries the offsets of one arbitrary task of the worker |
//! | `rewind` | rule 8: after an abort, tasks do not go back to the last commit |
//! | `in_doubt` | rule 6: a commit of unknown outcome counts as aborted |
//! | `membership` | a worker continues the tasks that it owned under another member id |
//! | `restart_table` | local state counts as exact, regardless of the committed offsets |
//! | `apply_after_commit` | databases take a transaction before its EndTxn is sent |
//! | `restoring` | each batch of a restore marks the database as whole |
//! | `lso_after_apply` | a database stores a changelog's LSO as of the apply of a transaction, with that transaction |
//! | `purge_after_commit` | records of repartition topics are purged once they are taken, before the commit |
//! | `drain` | a commit does not wait until all sent records are acknowledged |
//! | `offsets` | a transaction carries no offsets at all |
//! | `offsets_inside` | rule 11: offsets are committed through the consumer, before the transaction is |
//! | `next_offset` | the offset of the last record is committed instead of the next one |
//! | `abort_in_doubt` | rule 5: a commit without a response in time is aborted by the same producer |
//! | `keep_in_doubt` | rule 6: the changes of state are dropped with the producer whose commit is in doubt |
//! | `dirty` | rule 6: the worker continues tasks that another owner has continued |
//! | `generation` | rule 3: each commit has the group metadata of the first commit |
//! | `checked_member` | rule 3: each commit has the group metadata from before the worker joined, unchecked |
//! | `settle` | rule 4: partitions are given back while the transaction with their records is open |
//! | `close` | tasks continue after their partitions were revoked |
//! | `revoked_start` | tasks start even if their partitions were revoked during the lookup of their offsets |
//! | `loss` | rule 4: a loss commits the open transaction |
//! | `rewind_retained` | rule 4: after an abort in a rebalance the partitions that stay are not rewound |
//! | `stale_records` | rule 8: records that were fetched before a rewind are taken after it |
//! | `overlay` | the changes of an aborted transaction are kept |
//! | `nonce` | all attempts at a sequence number have the same name |
//! | `own_id` | each producer has its own transactional id, so a new producer fences no other |
//! | `first_start` | rule 10: a task takes records before its first offset is committed |
//! | `coverage` | no worker looks for partitions without an owner |
//! | `gone` | an offset that its log lacks is not read again before it is an error |
//! | `missing` | a missing offset is not read again before a task starts over |
//! | `foreign` | another app's records in a repartition topic count as the app's own |
//! | `ask_again` | offsets that are behind the state are not read again before they are an error |
//! | `count_ahead` | c > m: state that is ahead of its offsets counts as exact |
//! | `replay` | j < k: a copy that is behind counts as exact |
//! | `interrupted` | a copy whose restore was interrupted counts as exact |
//! | `restore_to_end` | a restore ends at the LSO as of its start |
//! | `restore_per_task` | once one task of a worker is restored, all of them are |
//! | `heard_after_seal` | the position takes a changelog's LSO that was read after the transaction was sealed |
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
//! | `next_due` | an abort keeps the bound below which no moment is due |
//! | `into_the_past` | a moment in the past is listed before the last handled one |
//! | `cursor_inside` | the cursor of final results moves in memory, outside of the transaction |
//! | `windows_behind_cursor` | a database drops windows whose final results are not emitted yet |
//! | `dedup_key` | the scope of an id is not a part of its key |
//! | `sightings` | sightings of ids expire before the last record that can be their duplicate |
//! | `async_order` | records are emitted in the order in which their calls end, not in the order of their admission |
//! | `late_result` | results of calls count for a later start or rewind of the task |
//! | `timed_ids` | ids with a time expire a bucket too early |
//! | `watermark` | a repeated record lowers the high watermark of its producer |
//! | `epoch_order` | a lower epoch of a producer begins a new sequence |
//! | `alone_and_paired` | a closed record of a join still meets partners while it is stored |
//! | `rows_of_joins` | rows of a join expire before their records are emitted without a partner |
//! | `next_visit` | a visit of a row of a join does not schedule the next visit |
//! | `last_visit` | the last visit of a row of a join decides nothing |
//! | `subtract_without_add` | a row that stays in its group is subtracted only |
//! | `old_row_first` | the row before an update of a table is read after the update |
//! | `answer_tokens` | a join by foreign key takes each answer, also one about a former reference |
//! | `newest_right` | a row of a join by foreign key keeps the referenced value of its first answer |
//! | `fan_out_anew` | the answers to a change of a referenced row begin at the cursor of the change before it |
//! | `missing_row` | a reference to a missing row gets no answer, even if the result has to change |
//! | `unsubscribe` | a row that refers to another key stays subscribed to the former one |
//! | `waiting_records` | a record that waits for its turn expires when stream time passes its moment |
//! | `paused_offset` | the offset of a paused record is committed before the decision about it |
//! | `last_letter` | a key is released before its last dead letter is processed |
//! | `letter_numbers` | a dead letter that fails again has a new number |
//! | `parked_after_abort` | after an abort, a task does not check again whether a key is parked |
//! | `parked_after_release` | after a key is released, a task assumes that no other key is parked |
//! | `replay_bypasses_dedup` | a replay raises the generation of a record, so that deduplications do not recognize it |
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
//! | `tick_set` | a tick is set again as soon as the clock is behind the last handled one |
//! | `expired_rows` | expired rows are deleted before the moments that still see them |
//! | `final_marks` | a record forgets which sliding windows of its key are emitted |
//! | `due_index` | a restore does not list the moments that it loads |
//! | `claim_first` | at most once: records are processed before their offset is committed |
//! | `late_attempts` | at least once: a restore takes records of former owners that arrived late |
//! | `leave_unclear` | without transactions: a worker stays in the group though its commit may still arrive |
//! | `attempt_numbers` | at least once: an attempt takes the number of a discarded one |
//!
//! The crate `fail` does not fit. It has one registry for the process, but unit tests step workers on many threads, and
//! tests run several apps in parallel. It has no triggers by record, not these actions, and no log that outlives a
//! SIGKILL. It would add three dependencies for the counting that is left.

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
    //! Empty functions, for a build without the feature.

    use super::Point;
    use crate::client::ClientError;

    /// The failpoints that the threads of an app inherit from the thread that starts it.
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
