//! The tables of eos in a database: numbered SQL files, and their version.

use tokio_postgres::Client;

use crate::error::describe;

/// The files, in order. A file of a release never changes.
const FILES: &[(i32, &str)] = &[(1, include_str!("../sql/0001-positions.sql"))];

/// The version of the tables that this release uses.
pub const VERSION: i32 = 1;

/// Two installations at a time would both create the tables. "eos" in ASCII.
const LOCK: i64 = 0x0065_6f73;

/// Whether the table `eos.meta` exists.
const HAS_META: &str = "SELECT to_regclass('eos.meta') IS NOT NULL";

/// The tables of eos could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The database was used by a newer release.
    #[error(
        "the schema `eos` has version {found}, and this release of eos-postgres knows versions up to {VERSION}: use a \
         newer release"
    )]
    Newer {
        /// The version of the database.
        found: i32,
    },
    /// A statement failed.
    #[error(
        "the schema `eos` could not be installed: {cause}. The role needs CREATE on the database"
    )]
    Refused {
        /// The error of the server.
        cause: String,
    },
}

/// Creates the tables of eos, or brings them to this version. Does nothing if they have this version.
///
/// A running app never creates tables, so that its role needs no CREATE. Run this once, for example in a migration.
/// Several processes may call it at the same time. An administrator may also apply the files of [`schema_files`].
///
/// # Errors
/// [`InstallError`] if the role may not create tables, or if the tables have a newer version.
pub async fn install(client: &Client) -> Result<(), InstallError> {
    let refused = |error: tokio_postgres::Error| InstallError::Refused {
        cause: describe(&error),
    };
    client.batch_execute("BEGIN").await.map_err(refused)?;
    let result = install_in_transaction(client).await;
    let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = client.batch_execute(end).await.map_err(refused);
    result.and(ended)
}

async fn install_in_transaction(client: &Client) -> Result<(), InstallError> {
    let refused = |error: tokio_postgres::Error| InstallError::Refused {
        cause: describe(&error),
    };
    let lock = format!("SELECT pg_advisory_xact_lock({LOCK})");
    client.batch_execute(&lock).await.map_err(refused)?;
    let found = version(client).await.map_err(refused)?.unwrap_or(0);
    if found > VERSION {
        return Err(InstallError::Newer { found });
    }
    for (number, text) in FILES {
        if *number > found {
            client.batch_execute(text).await.map_err(refused)?;
        }
    }
    Ok(())
}

/// Returns the version of the tables, or `None` without tables.
pub(crate) async fn version(client: &Client) -> Result<Option<i32>, tokio_postgres::Error> {
    let row = client.query_one(HAS_META, &[]).await?;
    if !row.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let row = client
        .query_opt("SELECT version FROM eos.meta", &[])
        .await?;
    row.map(|row| row.try_get(0)).transpose()
}

/// Returns the numbered SQL files of the schema, in order, for an administrator who applies them by hand, each in one
/// transaction.
#[must_use]
pub fn schema_files() -> &'static [(i32, &'static str)] {
    FILES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_numbered_up_to_the_version() {
        let numbers: Vec<i32> = FILES.iter().map(|(number, _)| *number).collect();
        let expected: Vec<i32> = (1..=VERSION).collect();
        assert_eq!(numbers, expected);
    }
}
