//! The error of a URL.

/// A URL of a server that cannot be used. It contains no part of the URL except the host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The text is no URL of PostgreSQL.
    #[error(
        "the URL of the database cannot be read: {cause}. Expected: \
         postgres://user:password@host:5432/database?sslmode=verify-full"
    )]
    Invalid {
        /// The part that is wrong.
        cause: String,
    },
    /// The URL names no database.
    #[error("the URL of the database names no database. Expected: postgres://user@host/database")]
    NoDatabase,
    /// `sslmode` has another value.
    #[error(
        "sslmode={mode} is unknown. Use verify-full (the default for other machines), disable (for this machine), or \
         insecure (no encryption)"
    )]
    Mode {
        /// The value.
        mode: String,
    },
    /// Rows and password would cross the network without encryption.
    #[error(
        "the connection to {host} would not be encrypted: {reason}. `sslmode=insecure` in the URL accepts that"
    )]
    NotEncrypted {
        /// The host.
        host: String,
        /// The setting, and the required change.
        reason: &'static str,
    },
    /// The certificates cannot be read.
    #[error("the root certificates for {host} cannot be used: {cause}")]
    Certificates {
        /// The host.
        host: String,
        /// The file and the reason.
        cause: String,
    },
}
