//! Payments: duplicates, a fraud check, a ledger and balances.

use std::sync::Arc;
use std::time::Duration;

use eos_core::state::WindowStore;
use eos_core::windows::Tumbling;
use eos_core::{App, Backoff, ErrorPolicy, Failure, KeyValueStore, PlainTopic, Timestamp, Topic};
use serde::{Deserialize, Serialize};

const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Deserialize)]
struct Charge {
    request: String,
    cents: i64,
}

#[derive(Serialize)]
struct Entry {
    request: String,
    cents: i64,
    balance: i64,
}

#[derive(Serialize)]
struct Rejection {
    request: String,
    reason: String,
}

/// The fraud service: the reason to reject a charge to this account, if any.
type Fraud = Arc<dyn Fn(&str, &Charge) -> Result<Option<String>, Failure> + Send + Sync>;

/// By account.
fn requests() -> Topic<String, Charge> {
    Topic::json("charge-requests")
}

fn ledger() -> Topic<String, Entry> {
    Topic::json("ledger")
}

fn rejected() -> Topic<String, Rejection> {
    Topic::json("charges-rejected")
}

fn balances() -> PlainTopic<String, i64> {
    Topic::plain("balances")
}

fn checked(charge: Charge) -> Result<Charge, Failure> {
    if charge.cents <= 0 {
        let reason = format!("a charge of {} cents", charge.cents);
        return Err(Failure::permanent(reason));
    }
    Ok(charge)
}

fn app(fraud: Fraud) -> App {
    let mut app = App::new("payments-v1");
    let days = Tumbling::of(DAY);
    // A charge of the last 24 hours is in the bucket of this day or of the day before.
    let seen = app.store(&WindowStore::plain("seen-requests").retention(2 * DAY));
    let balance = app.store(&KeyValueStore::plain("balances"));
    let to_ledger = app.output(&ledger());
    let retry = Backoff::exponential(Duration::from_millis(200), Duration::from_secs(10));
    let (good, bad) = app
        .source(&requests())
        .on_error(ErrorPolicy::retry(5, retry).then(ErrorPolicy::dead_letter("charges-dlq")))
        .try_map(checked)
        .with_store(&seen)
        .process_values(move |ctx, charge| {
            // The bucket of a late charge's own time may have expired. Stream time never goes back.
            let now = ctx.stream_time().ok_or("no timestamp")?;
            let today = days.window(now).ok_or("a time before 1970")?;
            let (seen, request) = (ctx.store(&seen), &charge.value.request);
            let (from, to) = (now.0 - DAY.as_millis() as i64, now.0 + 1);
            let buckets = days.starts(Timestamp(from), Timestamp(to));
            let earlier = seen.fetch(request, buckets)?;
            if earlier.iter().any(|(_, time)| *time > from) {
                return Ok(());
            }
            seen.put(request, today.start, &now.0)?;
            ctx.forward(charge.value)
        })
        .try_map_record(move |charge| {
            Ok(match fraud(charge.key, &charge.value)? {
                None => Ok(charge.value),
                Some(reason) => Err(Rejection {
                    request: charge.value.request,
                    reason,
                }),
            })
        })
        .split_result();
    bad.to(&rejected());
    good.with_store(&balance)
        .process_values(move |ctx, charge| {
            let Charge { request, cents } = charge.value;
            let balance = ctx
                .store(&balance)
                .update(charge.key, |balance| balance.unwrap_or(0) - cents)?;
            let entry = Entry {
                request,
                cents,
                balance,
            };
            ctx.emit(&to_ledger, charge.key.clone(), entry)?;
            ctx.forward(balance)
        })
        .to(&balances());
    app
}

mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use eos_testkit::{Input, TestDriver, crash_everywhere};
    use serde_json::{Value, json};

    use super::super::dead_letters;
    use super::*;

    const HOUR: i64 = 3_600_000;

    /// Rejects charges above 100 euros. The first calls fail.
    fn fraud_after_outage(calls: u32) -> Fraud {
        let outage = AtomicU32::new(calls);
        Arc::new(move |account, charge| {
            let next = |calls: u32| calls.checked_sub(1);
            let is_down = outage.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
            if is_down.is_ok() {
                return Err("the fraud service does not respond".into());
            }
            Ok((charge.cents > 10_000).then(|| format!("{account} spends too much")))
        })
    }

    fn start() -> TestDriver {
        TestDriver::of(|| app(fraud_after_outage(0)))
    }

    fn charge(driver: &mut TestDriver, account: &str, request: &str, cents: i64) {
        let value = json!({"request": request, "cents": cents});
        driver.pipe(&requests().values::<Value>(), account, value);
    }

    fn balances_of(driver: &mut TestDriver) -> Vec<(String, i64)> {
        driver.read_pairs(&balances())
    }

    #[test]
    fn charges_are_booked_or_rejected() {
        let mut driver = start();
        charge(&mut driver, "ada", "r-1", 500);
        charge(&mut driver, "bob", "r-2", 700);
        charge(&mut driver, "ada", "r-3", 20_000);
        charge(&mut driver, "ada", "r-4", 250);
        assert_eq!(
            driver.read_pairs(&ledger().values::<Value>()),
            [
                (
                    "ada".to_owned(),
                    json!({"request": "r-1", "cents": 500, "balance": -500})
                ),
                (
                    "bob".to_owned(),
                    json!({"request": "r-2", "cents": 700, "balance": -700})
                ),
                (
                    "ada".to_owned(),
                    json!({"request": "r-4", "cents": 250, "balance": -750})
                ),
            ]
        );
        assert_eq!(
            driver.read_pairs(&rejected().values::<Value>()),
            [(
                "ada".to_owned(),
                json!({"request": "r-3", "reason": "ada spends too much"})
            )]
        );
        let due = [("ada", -500), ("bob", -700), ("ada", -750)];
        assert_eq!(
            balances_of(&mut driver),
            due.map(|(k, v)| (k.to_owned(), v))
        );
    }

    /// The clock of the driver starts at midnight, where one bucket ends.
    #[test]
    fn a_request_counts_once_in_a_day() {
        let mut driver = start();
        // A record may not be far ahead of the driver's clock.
        let midnight = driver.now().0 - 96 * HOUR;
        let mut at = |time: i64| {
            let value = json!({"request": "r-1", "cents": 500});
            let requests = requests().values::<Value>();
            driver.pipe_at(&requests, "ada", value, Timestamp(midnight + time));
            driver.count(&balances())
        };
        assert_eq!(at(0), 1);
        assert_eq!(at(0), 1, "at the first moment of a bucket");
        assert_eq!(at(23 * HOUR), 1);
        assert_eq!(at(24 * HOUR), 2, "a day later");
        assert_eq!(at(25 * HOUR), 2);
        assert_eq!(at(47 * HOUR), 2, "in the same bucket");
        assert_eq!(at(70 * HOUR), 3);
        assert_eq!(at(75 * HOUR), 3, "in the bucket of the day before");
        assert_eq!(at(0), 3, "with a time before the first bucket");
    }

    #[test]
    fn poison_is_set_aside_at_once_and_an_outage_is_waited_for() {
        let mut driver = TestDriver::of(|| app(fraud_after_outage(3)));
        let poison = Input::raw(Some(b"ada"), Some(b"{\"request\":"));
        driver.pipe_input(&requests().values::<Value>(), poison);
        charge(&mut driver, "ada", "r-1", -5);
        assert_eq!(driver.metrics().unwrap().totals.retried, 0);
        assert_eq!(
            dead_letters(&mut driver, "charges-dlq"),
            [&b"{\"request\":"[..], br#"{"cents":-5,"request":"r-1"}"#]
        );

        charge(&mut driver, "ada", "r-2", 500);
        assert_eq!(driver.metrics().unwrap().totals.retried, 3);
        assert_eq!(balances_of(&mut driver), [("ada".to_owned(), -500)]);
        assert!(dead_letters(&mut driver, "charges-dlq").is_empty());
    }

    #[test]
    fn a_crash_anywhere_changes_nothing() {
        let places = crash_everywhere(start, |driver| {
            charge(driver, "ada", "r-1", 500);
            charge(driver, "ada", "r-1", 500);
            charge(driver, "ada", "r-2", 20_000);
            charge(driver, "bob", "r-3", -1);
            charge(driver, "bob", "r-4", 700);
            driver.committed()
        });
        assert!(places > 50, "{places}");
    }
}
