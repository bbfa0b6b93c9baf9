//! The points and the defences. Their names exist with the feature only.

#[cfg(feature = "failpoints")]
use eos_protocol::{CallSite, Fault, code};

#[cfg(feature = "failpoints")]
use crate::client::ClientError;

/// A step at which a fault can be injected; the table in the module's page says where each is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    Poll,
    Begin,
    FirstSend,
    KthSend,
    PreOffsets,
    PostOffsets,
    PreCommit,
    InCommit,
    PostCommit,
    PreAbort,
    InRevoke,
    ClientCommit,
    PostCommitPreState,
    ApplyBegun,
    ApplyDone,
    RestoreK,
}

/// A defence that a test can take away, to see what it is good for: see [`rules`](crate::rules).
#[cfg(feature = "failpoints")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defence {
    Quarantine,
    EveryTouchedTask,
    Rewind,
    InDoubt,
    Membership,
    RestartTable,
    ApplyAfterCommit,
    Restoring,
    LsoAfterApply,
    PurgeAfterCommit,
    Drain,
    Offsets,
    OffsetsInside,
    NextOffset,
    AbortInDoubt,
    KeepInDoubt,
    Dirty,
    Generation,
    CheckedMember,
    Settle,
    Close,
    RevokedStart,
    Loss,
    RewindRetained,
    StaleRecords,
    Overlay,
    Nonce,
    OwnId,
    FirstStart,
    Coverage,
    Gone,
    Missing,
    Foreign,
    AskAgain,
    CountAhead,
    Replay,
    Interrupted,
    RestoreToEnd,
    RestorePerTask,
    HeardAfterSeal,
    StreamTime,
    ForgetOver,
    Trim,
    SiblingOffsets,
    MergeByTime,
    FailedEffects,
    HeldBack,
    ParkedAfterAbort,
    LetterNumbers,
    LastLetter,
    ReplayGeneration,
    PausedOffset,
    Tombstones,
    DedupKey,
    Sightings,
    AsyncOrder,
    LateResult,
    TimedIds,
    Watermark,
    EpochOrder,
    WaitingRecords,
    ApplyOrder,
    ReadInFlight,
    RestoreWritten,
    FireOnce,
    NextDue,
    IntoThePast,
    CursorInside,
    WindowsBehindCursor,
    IdleEvidence,
    TickSet,
    ExpiredRows,
    FinalMarks,
    DueIndex,
    ClaimFirst,
    LateAttempts,
    LeaveUnclear,
    AttemptNumbers,
}

#[cfg(feature = "failpoints")]
impl Point {
    pub(super) const ALL: [Self; 16] = [
        Self::Poll,
        Self::Begin,
        Self::FirstSend,
        Self::KthSend,
        Self::PreOffsets,
        Self::PostOffsets,
        Self::PreCommit,
        Self::InCommit,
        Self::PostCommit,
        Self::PreAbort,
        Self::InRevoke,
        Self::ClientCommit,
        Self::PostCommitPreState,
        Self::ApplyBegun,
        Self::ApplyDone,
        Self::RestoreK,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Begin => "begin",
            Self::FirstSend => "first_send",
            Self::KthSend => "kth_send",
            Self::PreOffsets => "pre_offsets",
            Self::PostOffsets => "post_offsets",
            Self::PreCommit => "pre_commit",
            Self::InCommit => "in_commit",
            Self::PostCommit => "post_commit",
            Self::PreAbort => "pre_abort",
            Self::InRevoke => "in_revoke",
            Self::ClientCommit => "client_commit",
            Self::PostCommitPreState => "post_commit_pre_state",
            Self::ApplyBegun => "apply_begun",
            Self::ApplyDone => "apply_done",
            Self::RestoreK => "restore_k",
        }
    }

    /// What the client's call of this step fails with: each of them is an error that librdkafka
    /// gives there.
    pub(super) fn error(self) -> ClientError {
        let (call, fault) = match self {
            Self::Poll => (CallSite::Poll, Fault::plain(code::LOCAL_ALL_BROKERS_DOWN)),
            Self::Begin => (CallSite::Begin, fatal(code::LOCAL_FENCED)),
            Self::FirstSend | Self::KthSend => {
                (CallSite::Send, Fault::plain(code::UNKNOWN_PRODUCER_ID))
            }
            Self::PreOffsets | Self::PostOffsets => (
                CallSite::SendOffsets,
                Fault {
                    abortable: true,
                    ..Fault::plain(code::LOCAL_TIMED_OUT)
                },
            ),
            Self::PreCommit | Self::InCommit | Self::ClientCommit => (CallSite::Commit, late()),
            Self::PostCommit => (CallSite::Commit, fatal(code::LOCAL_FENCED)),
            Self::PreAbort => (CallSite::Abort, late()),
            // No call of the client is made there: the worker stops, as for a database that fails.
            Self::PostCommitPreState | Self::ApplyBegun | Self::ApplyDone | Self::RestoreK => {
                (CallSite::Poll, fatal(code::LOCAL_STATE))
            }
            Self::InRevoke => (
                CallSite::SendOffsets,
                Fault::plain(code::ILLEGAL_GENERATION),
            ),
        };
        ClientError {
            call,
            fault,
            text: format!("injected at the failpoint {}", self.name()),
        }
    }
}

#[cfg(feature = "failpoints")]
impl Defence {
    pub(super) const ALL: [Self; 78] = [
        Self::Quarantine,
        Self::EveryTouchedTask,
        Self::Rewind,
        Self::InDoubt,
        Self::Membership,
        Self::RestartTable,
        Self::ApplyAfterCommit,
        Self::Restoring,
        Self::LsoAfterApply,
        Self::PurgeAfterCommit,
        Self::Drain,
        Self::Offsets,
        Self::OffsetsInside,
        Self::NextOffset,
        Self::AbortInDoubt,
        Self::KeepInDoubt,
        Self::Dirty,
        Self::Generation,
        Self::CheckedMember,
        Self::Settle,
        Self::Close,
        Self::RevokedStart,
        Self::Loss,
        Self::RewindRetained,
        Self::StaleRecords,
        Self::Overlay,
        Self::Nonce,
        Self::OwnId,
        Self::FirstStart,
        Self::Coverage,
        Self::Gone,
        Self::Missing,
        Self::Foreign,
        Self::AskAgain,
        Self::CountAhead,
        Self::Replay,
        Self::Interrupted,
        Self::RestoreToEnd,
        Self::RestorePerTask,
        Self::HeardAfterSeal,
        Self::StreamTime,
        Self::ForgetOver,
        Self::Trim,
        Self::SiblingOffsets,
        Self::MergeByTime,
        Self::FailedEffects,
        Self::HeldBack,
        Self::ParkedAfterAbort,
        Self::LetterNumbers,
        Self::LastLetter,
        Self::ReplayGeneration,
        Self::PausedOffset,
        Self::Tombstones,
        Self::DedupKey,
        Self::Sightings,
        Self::AsyncOrder,
        Self::LateResult,
        Self::TimedIds,
        Self::Watermark,
        Self::EpochOrder,
        Self::WaitingRecords,
        Self::ApplyOrder,
        Self::ReadInFlight,
        Self::RestoreWritten,
        Self::FireOnce,
        Self::NextDue,
        Self::IntoThePast,
        Self::CursorInside,
        Self::WindowsBehindCursor,
        Self::IdleEvidence,
        Self::TickSet,
        Self::ExpiredRows,
        Self::FinalMarks,
        Self::DueIndex,
        Self::ClaimFirst,
        Self::LateAttempts,
        Self::LeaveUnclear,
        Self::AttemptNumbers,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Quarantine => "quarantine",
            Self::EveryTouchedTask => "every_touched_task",
            Self::Rewind => "rewind",
            Self::InDoubt => "in_doubt",
            Self::Membership => "membership",
            Self::RestartTable => "restart_table",
            Self::ApplyAfterCommit => "apply_after_commit",
            Self::Restoring => "restoring",
            Self::LsoAfterApply => "lso_after_apply",
            Self::PurgeAfterCommit => "purge_after_commit",
            Self::Drain => "drain",
            Self::Offsets => "offsets",
            Self::OffsetsInside => "offsets_inside",
            Self::NextOffset => "next_offset",
            Self::AbortInDoubt => "abort_in_doubt",
            Self::KeepInDoubt => "keep_in_doubt",
            Self::Dirty => "dirty",
            Self::Generation => "generation",
            Self::CheckedMember => "checked_member",
            Self::Settle => "settle",
            Self::Close => "close",
            Self::RevokedStart => "revoked_start",
            Self::Loss => "loss",
            Self::RewindRetained => "rewind_retained",
            Self::StaleRecords => "stale_records",
            Self::Overlay => "overlay",
            Self::Nonce => "nonce",
            Self::OwnId => "own_id",
            Self::FirstStart => "first_start",
            Self::Coverage => "coverage",
            Self::Gone => "gone",
            Self::Missing => "missing",
            Self::Foreign => "foreign",
            Self::AskAgain => "ask_again",
            Self::CountAhead => "count_ahead",
            Self::Replay => "replay",
            Self::Interrupted => "interrupted",
            Self::RestoreToEnd => "restore_to_end",
            Self::RestorePerTask => "restore_per_task",
            Self::HeardAfterSeal => "heard_after_seal",
            Self::StreamTime => "stream_time",
            Self::ForgetOver => "forget_over",
            Self::Trim => "trim",
            Self::SiblingOffsets => "sibling_offsets",
            Self::MergeByTime => "merge_by_time",
            Self::FailedEffects => "failed_effects",
            Self::HeldBack => "held_back",
            Self::PausedOffset => "paused_offset",
            Self::ParkedAfterAbort => "parked_after_abort",
            Self::LetterNumbers => "letter_numbers",
            Self::LastLetter => "last_letter",
            Self::ReplayGeneration => "replay_bypasses_dedup",
            Self::Tombstones => "tombstones",
            Self::DedupKey => "dedup_key",
            Self::Sightings => "sightings",
            Self::AsyncOrder => "async_order",
            Self::LateResult => "late_result",
            Self::TimedIds => "timed_ids",
            Self::Watermark => "watermark",
            Self::EpochOrder => "epoch_order",
            Self::WaitingRecords => "waiting_records",
            Self::ApplyOrder => "apply_order",
            Self::ReadInFlight => "read_in_flight",
            Self::RestoreWritten => "restore_written",
            Self::FireOnce => "fire_once",
            Self::NextDue => "next_due",
            Self::IntoThePast => "into_the_past",
            Self::CursorInside => "cursor_inside",
            Self::WindowsBehindCursor => "windows_behind_cursor",
            Self::IdleEvidence => "idle_evidence",
            Self::TickSet => "tick_set",
            Self::ExpiredRows => "expired_rows",
            Self::FinalMarks => "final_marks",
            Self::DueIndex => "due_index",
            Self::ClaimFirst => "claim_first",
            Self::LateAttempts => "late_attempts",
            Self::LeaveUnclear => "leave_unclear",
            Self::AttemptNumbers => "attempt_numbers",
        }
    }
}

#[cfg(feature = "failpoints")]
fn fatal(code: i32) -> Fault {
    Fault {
        fatal: true,
        ..Fault::plain(code)
    }
}

/// A call of a transaction did not end in time and may be made again.
#[cfg(feature = "failpoints")]
fn late() -> Fault {
    Fault {
        retriable: true,
        ..Fault::plain(code::LOCAL_TIMED_OUT)
    }
}
