//! Waiting with a deadline, instead of sleeping and hoping.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kafka_wire::{Client, Isolation};

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Looks again and again until `condition` holds.
///
/// # Errors
/// When it does not hold within `patience`, naming `what` was waited for; and the condition's own
/// error at once, when looking is impossible.
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

/// Whether a group has committed a topic to its end.
///
/// # Errors
/// When the cluster does not answer.
pub fn is_through(client: &mut Client, group: &str, topic: &str) -> Result<bool> {
    let ends = client.end_offsets(topic, Isolation::ReadUncommitted)?;
    let committed = client.committed(group, topic)?.into_iter();
    let offsets = committed.map(|known| known.map_or(0, |(at, _)| at));
    Ok(offsets.eq(ends))
}

/// Waits until an app of this name has no transaction open.
///
/// # Errors
/// When it still has one after `patience`, or the cluster does not answer.
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
    fn says_what_it_waited_for() {
        let never = wait_until(Duration::from_millis(1), "the moon is blue", || Ok(false));
        let error = never.unwrap_err().to_string();
        assert!(error.contains("until the moon is blue"), "{error}");
    }

    #[test]
    fn looks_until_it_holds() {
        let mut looks = 0;
        wait_until(Duration::from_secs(5), "the third look", || {
            looks += 1;
            Ok(looks == 3)
        })
        .unwrap();
        assert_eq!(looks, 3);
    }
}
