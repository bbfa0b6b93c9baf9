//! An alert for each device that is silent for five minutes: a timer per key.
//! `cargo run -p eos-examples --bin 09-heartbeats`
//!
//! ```text
//! heartbeats ─→ timer per device, set again by each heartbeat ─ five minutes without one ─→ silent-devices
//! ```
//!
//! The timer uses the clock of the machine, so it fires even if no record arrives. Each moment is part of the app's state:
//! the transaction of the heartbeat sets it, and the transaction of the alert removes it. Kill this program at any time,
//! and start it again hours later: each silence gives one alert.
//!
//! With the embedded broker, a silence lasts five seconds. `SILENT_SECONDS` sets another time, with `--kafka` too.
//!
//! After `eos kafka up` (see README.md):
//!
//! ```sh
//! eos kafka topic heartbeats silent-devices
//! eos kafka produce heartbeats < examples/09-heartbeats/heartbeats.txt
//! SILENT_SECONDS=3 cargo run -p eos-examples --bin 09-heartbeats -- --kafka
//! eos kafka read silent-devices
//! ```

use std::time::Duration;

use eos_core::{App, PlainTopic, Timer, Topic};
use eos_examples::{Input, Kafka, log_to_stderr};

const FIVE_MINUTES: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr();
    let beats = Input::keyed("heartbeats", include_str!("heartbeats.txt"));
    let kafka = Kafka::provide(&[beats], &["silent-devices"])?;
    let silence = match std::env::var("SILENT_SECONDS") {
        Ok(seconds) => Duration::from_secs(seconds.parse()?),
        Err(_) if kafka.is_embedded() => SOON,
        Err(_) => FIVE_MINUTES,
    };
    app(silence).run(kafka.bootstrap()).await?;
    Ok(())
}

/// The key is the device, the value its state.
fn heartbeats() -> PlainTopic<String, String> {
    Topic::plain("heartbeats")
}

fn alerts() -> PlainTopic<String, String> {
    Topic::plain("silent-devices")
}

fn app(silence: Duration) -> App {
    let mut app = App::new("heartbeats-v1");
    let silent = app.timer(&Timer::<String>::wall_clock("silent"));
    app.source(&heartbeats())
        .on_timer(&silent, |ctx, due| {
            ctx.forward(due.key, format!("silent, alert due at {} ms", due.at.0))
        })
        .process_values(move |ctx, beat| ctx.timer(&silent).set_in(beat.key, silence))
        .to(&alerts());
    app
}

#[cfg(test)]
mod tests {
    use eos_testkit::TestDriver;

    use super::*;

    #[test]
    fn each_silence_gives_one_alert_despite_crashes() {
        let minute = Duration::from_secs(60);
        let mut driver = TestDriver::of(|| app(FIVE_MINUTES));
        driver.pipe(&heartbeats(), "door", "ok");
        driver.advance_wall_clock(3 * minute);
        driver.pipe(&heartbeats(), "lamp", "ok");
        driver.crash();
        driver.advance_wall_clock(minute);
        assert!(driver.is_empty(&alerts()));

        driver.advance_wall_clock(minute);
        let alerts_of = |driver: &mut TestDriver| -> Vec<String> {
            driver
                .read(&alerts())
                .into_iter()
                .map(|it| it.key.clone())
                .collect()
        };
        assert_eq!(alerts_of(&mut driver), ["door"]);

        driver.crash_and_lose_state();
        driver.advance_wall_clock(10 * minute);
        assert_eq!(alerts_of(&mut driver), ["lamp"]);
    }
}
