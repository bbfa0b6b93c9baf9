//! Waits with a deadline.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kafka_wire::{Client, Isolation};

/// The pause between two checks.
const PAUSE: Duration = Duration::from_millis(50);

/// Checks `condition` repeatedly until it is true.
///
/// # Errors
/// When the condition stays false for `patience`; the error names `what`. When the check itself fails.
pub fn wait_until(
    patience: Duration,
    what: &str,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + patience;
    while !condition()? {
        if Instant::now() >= deadline {
            bail!("waited {patience:?} in vain until {what}");
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Returns whether the committed offsets of a group are at the end of a topic.
///
/// # Errors
/// When the cluster does not respond.
pub fn is_through(client: &mut Client, group: &str, topic: &str) -> Result<bool> {
    let ends = client.end_offsets(topic, Isolation::ReadUncommitted)?;
    let committed = client.committed(group, topic)?.into_iter();
    let offsets = committed.map(|known| known.map_or(0, |(at, _)| at));
    Ok(offsets.eq(ends))
}

/// Waits until the app has no open transaction.
///
/// # Errors
/// When the app still has an open transaction after `patience`, or the cluster does not respond.
pub fn nothing_is_open(client: &mut Client, app: &str, patience: Duration) -> Result<()> {
    let prefix = format!("{app}-");
    wait_until(patience, "no transaction is open", || {
        let all = client.transactions()?;
        let mut ours = all
            .iter()
            .filter(|t| t.transactional_id.starts_with(&prefix));
        Ok(!ours.any(|t| t.is_open()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_condition() {
        let never = wait_until(Duration::from_millis(1), "the moon is blue", || Ok(false));
        let error = never.unwrap_err().to_string();
        assert!(error.contains("until the moon is blue"), "{error}");
    }

    #[test]
    fn checks_until_the_condition_is_true() {
        let mut looks = 0;
        wait_until(Duration::from_secs(5), "the third look", || {
            looks += 1;
            Ok(looks == 3)
        })
        .unwrap();
        assert_eq!(looks, 3);
    }
}
