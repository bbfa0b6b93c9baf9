//! Defences that a test removes, to show what goes wrong without them.

use crate::sql;

/// A defence of the boundary. Only tests remove one.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Defence {
    /// The tables of an app keep their rows in a crash.
    LoggedTables,
    /// Deferred constraints are checked before the positions move.
    EarlyConstraints,
    /// A `COMMIT` is sent once.
    OneCommit,
    /// The row of a held position identifies its holder.
    HolderOfRow,
    /// A new session ends older sessions of its own database only.
    OneDatabase,
    /// A session that is no longer the newest of its identity ends its worker.
    NewestSession,
    /// The keys of a whole transaction are sorted.
    SortedTransaction,
    /// The id of a refused record is not claimed.
    UnclaimedIds,
    /// Positions move in the transaction of their rows.
    OneTransaction,
    /// No statement changes the role or the `search_path` for later ones.
    SameSettings,
    /// A transaction locks its positions, and compares them with the expected ones.
    ComparedPositions,
    /// The id of a message is claimed in the transaction of its rows.
    ClaimsWithRows,
    /// A session that waits for a synchronous standby is not ended.
    SyncRep,
    /// A transaction with a failed statement is not committed.
    CheckedAnswers,
}

/// The statements that contain a defence. The missing defences are left out.
#[derive(Debug, Clone)]
pub(crate) struct Statements {
    pub(crate) hold: String,
    pub(crate) set: String,
    pub(crate) end_holder: String,
    pub(crate) end_older_sessions: String,
}

impl Statements {
    pub(crate) fn new(has: impl Fn(Defence) -> bool) -> Self {
        let mut all = Self {
            hold: sql::HOLD.to_owned(),
            set: sql::SET.to_owned(),
            end_holder: sql::END_HOLDER.to_owned(),
            end_older_sessions: sql::END_OLDER_SESSIONS.to_owned(),
        };
        if !has(Defence::OneTransaction) {
            all.set = all.set.replace(IN_ONE_TRANSACTION, "");
        }
        if !has(Defence::SameSettings) {
            all.set = all.set.replace(sql::AND_SAME_SETTINGS, "");
        }
        if !has(Defence::ComparedPositions) {
            all.hold = all
                .hold
                .replace(AS_EXPECTED, UNCOMPARED)
                .replace(LOCKED, "");
            all.set = all.set.replace(AS_EXPECTED, UNCOMPARED);
        }
        if !has(Defence::HolderOfRow) {
            all.end_holder = END_BLOCKING.to_owned();
        }
        if !has(Defence::OneDatabase) {
            all.end_older_sessions = all.end_older_sessions.replace(IN_THIS_DATABASE, "");
        }
        if !has(Defence::SyncRep) {
            all.end_holder = all.end_holder.replace(NOT_IN_SYNC_REP, "");
            all.end_older_sessions = all.end_older_sessions.replace(NOT_IN_SYNC_REP, "");
        }
        all
    }
}

const IN_ONE_TRANSACTION: &str = "AND pg_catalog.current_setting('eos.transaction', true) = pg_catalog.pg_current_xact_id()::text ";
const AS_EXPECTED: &str =
    "p.owner = $2 AND p.epoch = m.epoch AND p.next_offset IS NOT DISTINCT FROM m.expected ";
/// Keeps the type of the parameter.
const UNCOMPARED: &str = "$2::int8 IS NOT NULL ";
const LOCKED: &str = " FOR NO KEY UPDATE OF p";
const NOT_IN_SYNC_REP: &str = "AND a.wait_event IS DISTINCT FROM 'SyncRep' ";
const IN_THIS_DATABASE: &str = "a.datname = pg_catalog.current_database() AND ";

/// Ends the sessions that this session waits for. After `lock_timeout`, it waits for none.
const END_BLOCKING: &str = "SELECT a.pid, a.application_name, true, pg_catalog.pg_terminate_backend(a.pid) \
     FROM pg_catalog.pg_stat_activity AS a \
     WHERE a.pid = ANY (pg_catalog.pg_blocking_pids(pg_catalog.pg_backend_pid())) \
       AND ($1::text, $2::text, $3::int4) IS NOT NULL";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_statement_contains_its_defence() {
        let whole = Statements::new(|_| true);
        assert_eq!(whole.set, sql::SET);
        let bare = Statements::new(|_| false);
        for of_set in [
            Defence::OneTransaction,
            Defence::SameSettings,
            Defence::ComparedPositions,
        ] {
            assert_ne!(Statements::new(|one| one != of_set).set, whole.set);
        }
        assert_ne!(bare.hold, whole.hold);
        assert!(!bare.set.contains("p.epoch") && !bare.hold.contains("FOR NO KEY UPDATE"));
        assert_ne!(bare.end_holder, whole.end_holder);
        assert_ne!(bare.end_older_sessions, whole.end_older_sessions);
        let ending = Statements::new(|defence| defence != Defence::SyncRep);
        assert_ne!(ending.end_holder, whole.end_holder);
        assert_ne!(ending.end_older_sessions, whole.end_older_sessions);
    }
}
