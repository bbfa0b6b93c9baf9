//! The reaction to an error of the server, as a table of the SQLSTATE and the failed call.
//!
//! A repeated statement of a failed transaction has no effect, and a `COMMIT` after it rolls back without an error. So
//! only calls outside of a transaction are repeated.

/// The call for which the server returned an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    /// A connection, the epoch of a session, a take-over or a look: nothing is open, so it can be repeated.
    Outside,
    /// `BEGIN`, the lock of a position, or its move.
    Position,
    /// Rows, statements, the inbox, and the check of deferred constraints.
    Data,
    /// `COMMIT` and `ROLLBACK`.
    End,
}

/// The reaction to an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reaction {
    /// Repeat the call later.
    Retry,
    /// The transaction failed, and may succeed when it is run again.
    Abort,
    /// As [`Abort`](Self::Abort). The cause passes without this worker, so the transaction may run again for hours.
    Wait,
    /// A row of the transaction is refused, and is refused again.
    Refuse,
    /// The connection is gone, or the statements of the session do not fit a changed table: a new session must replace it.
    /// In [`Call::End`] the outcome is unknown.
    Lost,
    /// An operator must act.
    Stop,
}

/// The parts of the server's error that decide the reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State<'a> {
    /// The SQLSTATE. Empty without an answer: the connection failed.
    pub(crate) code: &'a str,
    /// Whether a row-level security policy refused a row. Its SQLSTATE is that of a missing grant.
    pub(crate) is_row_security: bool,
}

/// The classes of PostgreSQL's own codes (appendix A of its manual).
const OF_POSTGRES: [&str; 43] = [
    "00", "01", "02", "03", "08", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "20", "21", "22", "23",
    "24", "25", "26", "27", "28", "2B", "2D", "2F", "34", "38", "39", "3B", "3D", "3F", "40", "42",
    "44", "53", "54", "55", "57", "58", "72", "F0", "HV", "P0", "XX",
];

/// Decides the reaction.
pub(crate) fn react(call: Call, state: State<'_>) -> Reaction {
    let class = state.code.get(..2).unwrap_or("");
    match call {
        Call::Outside => outside(class),
        Call::Data if is_refused(class, state) => Reaction::Refuse,
        // A deferred constraint trigger may refuse a row only here.
        Call::End if is_refused(class, state) => Reaction::Refuse,
        Call::Position | Call::Data | Call::End => inside(class, state.code),
    }
}

fn outside(class: &str) -> Reaction {
    match class {
        // 28 wrong password; 3D no such database; 3F no such schema; 42 no such table, column or grant.
        "28" | "3D" | "3F" | "42" => Reaction::Stop,
        _ => Reaction::Retry,
    }
}

fn is_refused(class: &str, state: State<'_>) -> bool {
    match class {
        // 21 two rows of one key; 22 the value does not fit; 23 a constraint; 44 a view's WITH CHECK OPTION.
        "21" | "22" | "23" | "44" => true,
        // P0001 RAISE EXCEPTION in a trigger; its other codes are the trigger's as well. 09, 20, 27: a triggered action, a
        // CASE without a match, a change by a trigger. 38, 39: functions in other languages.
        "P0" | "09" | "20" | "27" | "38" | "39" => true,
        // 54000 the row does not fit into an index or a page; 54001 a value is nested too deeply. Others of the class are
        // limits of the server.
        "54" => matches!(state.code, "54000" | "54001"),
        "42" => state.code == "42501" && state.is_row_security,
        // A code of the user's own: RAISE EXCEPTION with ERRCODE.
        _ => !class.is_empty() && !OF_POSTGRES.contains(&class),
    }
}

fn inside(class: &str, code: &str) -> Reaction {
    match class {
        // No answer; 08 the connection; 57P0x the server stops, or an administrator ended the session.
        "" | "08" => Reaction::Lost,
        "57" if code != "57014" => Reaction::Lost,
        // 25P03: idle in a transaction for too long. 25P04: a transaction took too long. Both end the session.
        "25" if matches!(code, "25P03" | "25P04") => Reaction::Lost,
        // 0A not supported (COPY in a statement, a distributed table); 2D a procedure that commits;
        // 28, 3D, 3F, 42: as outside. None gets better with time.
        "0A" | "2D" | "28" | "3D" | "3F" | "42" => Reaction::Stop,
        // 40 conflicts and deadlocks; 53 resources.
        "40" | "53" => Reaction::Wait,
        // A lock was not granted in time; the server is read-only after a failover.
        _ if matches!(code, "55P03" | "25006") => Reaction::Wait,
        // 57014 cancelled, 25P02 a failed transaction, 55 objects in another state, XX: the transaction runs again. A
        // worker stops after many aborts in a row.
        _ => Reaction::Abort,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reaction(call: Call, code: &str) -> Reaction {
        react(
            call,
            State {
                code,
                is_row_security: false,
            },
        )
    }

    /// A test for each row: code, reactions outside, at a position, in data, at the end.
    #[test]
    fn every_row_of_the_table() {
        use Reaction::{Abort, Lost, Refuse, Retry, Stop, Wait};
        let rows = [
            ("", [Retry, Lost, Lost, Lost]),
            ("08006", [Retry, Lost, Lost, Lost]),
            ("57P01", [Retry, Lost, Lost, Lost]),
            ("57P03", [Retry, Lost, Lost, Lost]),
            ("25P03", [Retry, Lost, Lost, Lost]),
            ("25P04", [Retry, Lost, Lost, Lost]),
            ("57014", [Retry, Abort, Abort, Abort]),
            ("25P02", [Retry, Abort, Abort, Abort]),
            ("25006", [Retry, Wait, Wait, Wait]),
            ("40001", [Retry, Wait, Wait, Wait]),
            ("40002", [Retry, Wait, Wait, Wait]),
            ("40P01", [Retry, Wait, Wait, Wait]),
            ("55P03", [Retry, Wait, Wait, Wait]),
            ("55000", [Retry, Abort, Abort, Abort]),
            ("53100", [Retry, Wait, Wait, Wait]),
            ("53200", [Retry, Wait, Wait, Wait]),
            ("53300", [Retry, Wait, Wait, Wait]),
            ("54001", [Retry, Abort, Refuse, Refuse]),
            ("54023", [Retry, Abort, Abort, Abort]),
            ("09000", [Retry, Abort, Refuse, Refuse]),
            ("20000", [Retry, Abort, Refuse, Refuse]),
            ("27000", [Retry, Abort, Refuse, Refuse]),
            ("38000", [Retry, Abort, Refuse, Refuse]),
            ("39004", [Retry, Abort, Refuse, Refuse]),
            ("45000", [Retry, Abort, Refuse, Refuse]),
            ("26000", [Retry, Abort, Abort, Abort]),
            ("XX000", [Retry, Abort, Abort, Abort]),
            ("58030", [Retry, Abort, Abort, Abort]),
            ("21000", [Retry, Abort, Refuse, Refuse]),
            ("22003", [Retry, Abort, Refuse, Refuse]),
            ("23505", [Retry, Abort, Refuse, Refuse]),
            ("23514", [Retry, Abort, Refuse, Refuse]),
            ("44000", [Retry, Abort, Refuse, Refuse]),
            ("54000", [Retry, Abort, Refuse, Refuse]),
            ("P0001", [Retry, Abort, Refuse, Refuse]),
            ("0A000", [Retry, Stop, Stop, Stop]),
            ("2D000", [Retry, Stop, Stop, Stop]),
            ("28P01", [Stop, Stop, Stop, Stop]),
            ("3D000", [Stop, Stop, Stop, Stop]),
            ("3F000", [Stop, Stop, Stop, Stop]),
            ("42501", [Stop, Stop, Stop, Stop]),
            ("42P01", [Stop, Stop, Stop, Stop]),
        ];
        let calls = [Call::Outside, Call::Position, Call::Data, Call::End];
        for (code, expected) in rows {
            assert_eq!(calls.map(|call| reaction(call, code)), expected, "{code}");
        }
    }

    #[test]
    fn row_security_refuses_a_row_and_a_missing_grant_stops() {
        let policy = State {
            code: "42501",
            is_row_security: true,
        };
        assert_eq!(react(Call::Data, policy), Reaction::Refuse);
        assert_eq!(reaction(Call::Data, "42501"), Reaction::Stop);
    }

    #[test]
    fn nothing_is_repeated_inside_a_transaction() {
        let classes = [
            "", "08", "21", "22", "23", "25", "40", "42", "53", "55", "57", "XX",
        ];
        for call in [Call::Position, Call::Data, Call::End] {
            for class in classes {
                let code = format!("{class}000");
                assert_ne!(reaction(call, &code), Reaction::Retry, "{call:?} {code}");
            }
        }
    }
}
