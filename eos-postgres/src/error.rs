//! Errors of the server as errors of a ledger.

use eos_core::boundary::{LedgerError, LedgerFailure};
use tokio_postgres::Error;

use crate::sqlstate::{Call, Reaction, State, react};

/// The function of the server that checks policies of row-level security. Unlike a message, it is not translated.
const POLICY_CHECK: &str = "ExecWithCheckOptions";
/// The function of the server that finds that a prepared statement would return other columns now.
const PLAN_CHECK: &str = "RevalidateCachedQuery";

/// A failed statement.
#[derive(Debug, Clone)]
pub(crate) struct Failed {
    pub(crate) reaction: Reaction,
    /// The SQLSTATE, or empty.
    pub(crate) code: String,
    /// The purpose of the statement, the error of the server, and the fix. Contains no values of rows.
    pub(crate) text: String,
    /// The place of the row, as an index into the plan.
    pub(crate) place: Option<usize>,
    /// The failure for the worker, if it does not follow from the reaction.
    failure: Option<LedgerFailure>,
}

/// The fix for a record whose row is refused.
const REFUSED: &str = ". `.refused(..)` of its table, statement or closure can skip such records, or make them dead letters";

impl Failed {
    /// Reads an error of the driver. `what` is the purpose of the statement, such as "insert into table stock".
    pub(crate) fn of(call: Call, what: &str, error: &Error) -> Self {
        let code = error.code().map_or("", |code| code.code());
        let is_row_security = error
            .as_db_error()
            .is_some_and(|answer| answer.routine() == Some(POLICY_CHECK));
        let unsent = error.code().is_none() && !error.is_closed() && is_encoding(error);
        let is_stale = error
            .as_db_error()
            .is_some_and(|answer| answer.routine() == Some(PLAN_CHECK));
        let reaction = if unsent && call == Call::Data {
            Reaction::Refuse
        } else if is_stale {
            // A new session prepares the statement again.
            Reaction::Lost
        } else {
            react(
                call,
                State {
                    code,
                    is_row_security,
                },
            )
        };
        Self {
            reaction,
            code: code.to_owned(),
            text: format!("{what} failed: {}{}", describe(error), advice(code)),
            place: None,
            failure: None,
        }
    }

    /// Returns whether the type of a value does not fit its column, or an operator of it: `datatype_mismatch`,
    /// `undefined_function`.
    pub(crate) fn is_of_type(&self) -> bool {
        self.reaction == Reaction::Stop && matches!(self.code.as_str(), "42804" | "42883")
    }

    /// Returns a failure that the server did not report.
    pub(crate) fn new(reaction: Reaction, text: impl Into<String>) -> Self {
        Self {
            reaction,
            code: String::new(),
            text: text.into(),
            place: None,
            failure: None,
        }
    }

    pub(crate) fn at(mut self, place: usize) -> Self {
        self.place = Some(place);
        self
    }

    /// Creates the failure of a session that a newer session has replaced, or whose positions another worker has moved.
    pub(crate) fn overtaken(failure: LedgerFailure, text: impl Into<String>) -> Self {
        Self {
            failure: Some(failure),
            ..Self::new(Reaction::Abort, text)
        }
    }

    /// Returns the error for the worker.
    pub(crate) fn into_error(self, ledger: &str) -> LedgerError {
        let mut text = format!("{ledger}: {}", self.text);
        if self.reaction == Reaction::Refuse {
            text.push_str(REFUSED);
        }
        let by_reaction = match self.reaction {
            Reaction::Retry => LedgerFailure::Retriable,
            Reaction::Abort | Reaction::Lost | Reaction::Refuse => LedgerFailure::Abortable,
            Reaction::Wait => LedgerFailure::Contended,
            Reaction::Stop => LedgerFailure::Fatal,
        };
        let error = LedgerError::new(self.failure.unwrap_or(by_reaction), text);
        if self.reaction == Reaction::Refuse {
            error.blaming_a_record()
        } else {
            error
        }
    }
}

/// Returns whether the driver could not encode a value. Such a statement was never sent.
fn is_encoding(error: &Error) -> bool {
    let text = error.to_string();
    text.starts_with("error serializing parameter") || text.starts_with("error encoding message")
}

/// Returns the text without the part between its first and its last quotation mark, which may contain others.
fn without_quoted(text: &str) -> String {
    match (text.find('"'), text.rfind('"')) {
        (Some(first), Some(last)) => format!("{}…{}", &text[..first], &text[last + 1..]),
        _ => text.to_owned(),
    }
}

/// Returns the error of the server without its detail and context, which contain values of rows.
pub(crate) fn describe(error: &Error) -> String {
    if let Some(answer) = error.as_db_error() {
        let code = answer.code().code();
        // `value "300" is out of range for type smallint`, `syntax error at or near "secret"`.
        let message = match code.starts_with("22") || code == "42601" {
            true => without_quoted(answer.message()),
            false => answer.message().to_owned(),
        };
        let mut text = format!("{message} (SQLSTATE {code})");
        for (name, value) in [
            ("table", answer.table()),
            ("column", answer.column()),
            ("constraint", answer.constraint()),
        ] {
            if let Some(value) = value {
                text.push_str(&format!(", {name} {value}"));
            }
        }
        return text;
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// Returns the fix, if the SQLSTATE suggests one.
fn advice(code: &str) -> &'static str {
    match code {
        "28P01" | "28000" => ". Check user and password in the URL, and pg_hba.conf of the server",
        "3D000" => ". Create the database, or correct the URL",
        "3F000" => ". Install the schema: `eos_postgres::install`",
        "42501" => ". Grant the permission: the check at start prints the statements",
        "42P01" => ". Create the table, or correct its name",
        "53300" => ". Raise max_connections, or run fewer workers: each needs two connections",
        "25006" => {
            ". The server is read-only: connect to the primary (target_session_attrs=read-write)"
        }
        "53100" => ". Free some space on the disk of the server",
        "55P03" => ". Another session holds a lock: see pg_locks",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_row_blames_a_record() {
        let error = Failed::new(Reaction::Refuse, "x").into_error("postgres shop");
        assert!(error.blames_a_record);
        assert_eq!(error.failure, LedgerFailure::Abortable);
        assert_eq!(error.text, format!("postgres shop: x{REFUSED}"));
        let error = Failed::new(Reaction::Lost, "x").into_error("postgres shop");
        assert!(!error.blames_a_record);
        assert_eq!(error.text, "postgres shop: x");
    }
}
