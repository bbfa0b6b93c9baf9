//! Waiting with a deadline, instead of sleeping and hoping.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

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
