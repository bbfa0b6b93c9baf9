//! Deletes old ids of the inbox.

use std::time::Duration;

use tokio_postgres::{Client, Error};

/// The maximum number of ids per transaction. A longer transaction would hold back `VACUUM`.
const BATCH: i64 = 10_000;

const PRUNE: &str = "DELETE FROM eos.inbox WHERE ctid = ANY (ARRAY(\
     SELECT ctid FROM eos.inbox WHERE seen_at < pg_catalog.now() - pg_catalog.make_interval(secs => $1) \
     ORDER BY seen_at LIMIT $2))";

/// Deletes ids of `eos.inbox` that are older than `older_than`, in batches of 10,000. Returns the number of deleted ids.
///
/// Call it periodically, for example once a day. `older_than` must exceed the longest time after which a producer may resend a
/// message. A resent message whose id was deleted takes effect a second time. The client must not be in a transaction. Its role needs
/// USAGE on the schema `eos`, and SELECT and DELETE on `eos.inbox`. Several processes may call it at the same time. One of them then
/// deletes the ids, and the others may return earlier.
///
/// # Errors
/// Returns the error of the database. Batches that were deleted before the error stay deleted.
///
/// # Examples
/// ```no_run
/// # async fn daily(client: &eos_postgres::tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// const DAY: u64 = 24 * 60 * 60;
/// let deleted = eos_postgres::prune_inbox(client, std::time::Duration::from_secs(30 * DAY)).await?;
/// println!("{deleted} ids deleted");
/// # Ok(())
/// # }
/// ```
pub async fn prune_inbox(client: &Client, older_than: Duration) -> Result<u64, Error> {
    let statement = client.prepare(PRUNE).await?;
    let mut all = 0;
    loop {
        let deleted = client
            .execute(&statement, &[&older_than.as_secs_f64(), &BATCH])
            .await?;
        all += deleted;
        if deleted < BATCH.unsigned_abs() {
            return Ok(all);
        }
    }
}
