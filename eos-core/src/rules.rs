//! The rules that make every effect happen exactly once, by name.
//!
//! Each function returns `true`. With the feature `failpoints` a test can break a rule, to see that the simulation
//! finds what goes wrong without it: see [`failpoints`](crate::failpoints).

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $defence:ident,)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $rule() -> bool {
            #[cfg(feature = "failpoints")]
            return !crate::failpoints::undefended(crate::failpoints::Defence::$defence);
            #[cfg(not(feature = "failpoints"))]
            true
        }
    )*};
}

rules! {
    /// Rule 7: a producer with an unanswered request sends nothing more.
    quarantines_unanswered_producers = Quarantine,
    /// Rule 2: a transaction carries the offsets of every task that it touched.
    commits_every_touched_task = EveryTouchedTask,
    /// Rule 8: after an abort, tasks go back to the last commit.
    rewinds_after_abort = Rewind,
    /// Rule 6: the committed offsets decide a commit in doubt.
    reads_outcome_in_doubt = InDoubt,
    /// A worker works on what its present member id was assigned.
    owns_as_one_member = Membership,
    /// The committed offsets decide what local state is worth.
    judges_local_state = RestartTable,
    /// A database takes a transaction after it is known to be committed.
    applies_after_commit = ApplyAfterCommit,
    /// A batch of a restore marks the database as not whole.
    marks_partial_restores = Restoring,
    /// A database stores changelog ends that were read before the seal.
    stores_known_ends_only = LsoAfterApply,
    /// Records of repartition topics are purged once they are committed as read.
    purges_committed_records_only = PurgeAfterCommit,
    /// Everything that was sent is acknowledged before the commit.
    drains_before_commit = Drain,
    /// A transaction carries offsets.
    sends_offsets = Offsets,
    /// Rule 11: offsets are committed by the transaction alone.
    sends_offsets_in_transaction = OffsetsInside,
    /// The committed offset is the next one to read.
    commits_next_offsets = NextOffset,
    /// Rule 5: nothing aborts a commit that has no response.
    never_aborts_in_doubt = AbortInDoubt,
    /// Rule 6: changes are kept while their commit is in doubt.
    keeps_changes_in_doubt = KeepInDoubt,
    /// Rule 6: tasks that another worker went on with start again from the group's offsets.
    evicts_after_foreign_commit = Dirty,
    /// Rule 3: the group's metadata is read for each commit.
    reads_member_for_each_commit = Generation,
    /// Rule 3: the group's metadata names a member of a known generation.
    checks_member = CheckedMember,
    /// Rule 4: the open transaction ends before its partitions are given back.
    settles_before_revocation = Settle,
    /// Tasks close when their partitions are revoked.
    closes_revoked_tasks = Close,
    /// A task whose partition was revoked does not start.
    forgets_revoked_starts = RevokedStart,
    /// Rule 4: a loss aborts the open transaction.
    aborts_on_loss = Loss,
    /// Rule 4: after an abort in a rebalance, the partitions that stay are rewound.
    rewinds_retained_tasks = RewindRetained,
    /// Rule 8: records that were fetched before a rewind are dropped.
    drops_stale_records = StaleRecords,
    /// An abort drops its changes of state.
    drops_aborted_changes = Overlay,
    /// Each attempt at a sequence number has its own name.
    names_each_attempt = Nonce,
    /// A new producer has the transactional id of the one before it.
    keeps_transactional_id = OwnId,
    /// Rule 10: the first offset of a task is committed before its first record.
    commits_first_start = FirstStart,
    /// A static member checks that each partition has an owner.
    checks_coverage = Coverage,
    /// An offset that the log lacks is read once more.
    rereads_gone_offsets = Gone,
    /// A missing offset is read several times.
    rereads_missing_offsets = Missing,
    /// Records of a repartition topic count only if the group wrote them.
    proves_repartitions = Foreign,
    /// Offsets behind the state are read several times.
    rereads_offsets_behind = AskAgain,
    /// State that is ahead of its offsets does not count.
    refuses_state_ahead = CountAhead,
    /// A copy that is behind replays the changelog.
    replays_old_copies = Replay,
    /// A copy whose restore was interrupted is not whole.
    repeats_interrupted_restores = Interrupted,
    /// A restore reads to the end of the log, not to the last stable offset.
    restores_to_the_end = RestoreToEnd,
    /// Each task of a worker is restored to its own end.
    restores_each_task = RestorePerTask,
    /// The position takes a changelog end that was read before the seal.
    stores_sealed_ends_only = HeardAfterSeal,
    /// An abort takes stream time back.
    rewinds_stream_time = StreamTime,
    /// A database forgets windows that are closed.
    forgets_closed_windows_only = ForgetOver,
    /// A changelog of windows is trimmed behind their retention.
    trims_behind_retention = Trim,
    /// Rule 2: a transaction carries the offsets of all inputs of a task.
    commits_sibling_offsets = SiblingOffsets,
    /// A task with several inputs waits for each of them.
    waits_for_all_inputs = MergeByTime,
    /// A failed record leaves no effects.
    drops_failed_effects = FailedEffects,
    /// Results that are emitted once per commit take no effects of a waiting record along.
    gives_held_records_back = HeldBack,
    /// A database applies the transactions of a task in order.
    applies_in_order = ApplyOrder,
    /// A task reads its last transaction while its database applies it.
    reads_changes_in_flight = ReadInFlight,
    /// A task takes no record before its database has written the last restored one.
    restores_before_first_record = RestoreWritten,
    /// A moment is removed in the transaction of its handler's effects.
    removes_handled_moments = FireOnce,
    /// An abort forgets the bound below which no moment comes.
    forgets_next_due = NextDue,
    /// A moment in the past is listed behind the last handled one.
    lists_behind_mark = IntoThePast,
    /// A restore lists the moments that it loads.
    lists_loaded_moments = DueIndex,
    /// At most once: a record is processed once its offset is committed.
    claims_before_processing = ClaimFirst,
    /// At least once: a restore leaves out records that former owners sent late.
    leaves_out_late_attempts = LateAttempts,
    /// Without transactions: a worker whose commit may still arrive leaves the group.
    leaves_with_unclear_commit = LeaveUnclear,
    /// At least once: each attempt has a number of its own.
    numbers_each_attempt = AttemptNumbers,
    /// The cursor of final results commits with the results.
    commits_cursor_with_results = CursorInside,
    /// A database keeps the windows whose final results are not emitted yet.
    keeps_windows_behind_cursor = WindowsBehindCursor,
    /// Stream time runs on only with evidence that the inputs are idle.
    proves_idle_inputs = IdleEvidence,
    /// A tick is set again only if the clock was set back by more than a period.
    keeps_set_ticks = TickSet,
    /// Expired rows are deleted behind the moments that still see them.
    keeps_rows_for_moments = ExpiredRows,
    /// A row of sliding windows keeps which of its windows are emitted.
    keeps_final_marks = FinalMarks,
    /// The scope of an id is a part of its key.
    keeps_scopes_apart = DedupKey,
    /// A sighting of an id is kept as long as a record within the lateness can be its duplicate.
    keeps_sightings_for_late_records = Sightings,
    /// Records leave in the order of their admission, whichever call ends first.
    merges_in_order = AsyncOrder,
    /// The result of a call counts only in the incarnation of the task that started it.
    drops_late_results = LateResult,
    /// The offset of a paused record is committed with the decision about it.
    holds_back_paused_records = PausedOffset,
    /// After an abort, a task looks again whether a key is parked.
    looks_for_parked_keys_after_abort = ParkedAfterAbort,
    /// After a row of a parked key is deleted, a task looks again whether a key is parked.
    looks_for_parked_keys_after_release = ParkedAfterRelease,
    /// A dead letter that fails again keeps its number.
    gives_letter_numbers_once = LetterNumbers,
    /// A key is released after its last dead letter.
    releases_after_last_letter = LastLetter,
    /// A replay keeps the generation of a record, so that a deduplication knows it.
    keeps_generation_in_replay = ReplayGeneration,
    /// The bucket of an id with a time is kept until its last id is too old.
    keeps_buckets_of_current_ids = TimedIds,
    /// A repeated record does not lower the high watermark of its producer.
    keeps_highest_marks = Watermark,
    /// A lower epoch of a producer is not a new one.
    orders_epochs = EpochOrder,
    /// A record that waits for its turn is not expired by stream time.
    keeps_waiting_records = WaitingRecords,
    /// A closed record of a join has no further pairs.
    pairs_open_records_only = AloneAndPaired,
    /// The rows of a join stay until their records went out alone.
    keeps_rows_of_joins = RowsOfJoins,
    /// A visit of a row of a join schedules the next visit.
    sets_next_visits = NextVisit,
    /// A row of a join notes that its last visit has decided its records.
    notes_last_visits = LastVisit,
    /// A row that stays in its group is subtracted and added.
    adds_to_the_same_group = SubtractWithoutAdd,
    /// The row before an update is read before the update.
    reads_old_rows_first = OldRowFirst,
    /// An answer counts only with the token of its row.
    checks_tokens_of_answers = AnswerTokens,
    /// A left row has the right row of its newest answer.
    keeps_newest_right_rows = NewestRight,
    /// A second update of a right row begins at its first subscriber again.
    begins_fan_outs_anew = FanOutAnew,
    /// A reference to a missing right row gets an answer if the result has to change.
    answers_missing_rows = MissingRow,
    /// A left row that names another right row leaves the former one.
    ends_former_subscriptions = Unsubscribe,
    /// The new row of a join of two tables contains the row of the other table.
    joins_other_rows = OtherRow,
    /// A read of a join without a store has the rows of both tables.
    reads_both_rows_of_joins = JoinedRow,
    /// A record of a cogrouped stream is added to the stored result.
    adds_to_stored_results = CogroupedRow,
    /// Joins with a cogrouped table see the changes by each stream.
    joins_changes_of_all_streams = CogroupedChanges,
    /// A task takes no record before the global tables are read to their ends.
    reads_global_tables_first = GlobalStart,
    /// A start queries the ends of global tables again after it has reached them.
    asks_for_ends_again = GlobalEnds,
    /// The copy of a global table writes a position and its rows in one batch.
    writes_rows_with_position = GlobalPosition,
    /// A new session of a ledger takes over all positions again, to find the commits that a failover lost.
    takes_over_again = TakeOverAgain,
    /// The consumer group's copy of a position is no offset to start at.
    knows_copies_of_positions = CopiesOfPositions,
    /// A deletion from a store is a deletion from its changelog.
    writes_tombstones = Tombstones,
}
