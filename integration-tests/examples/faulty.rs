//! The app of `tests/kafka/policies.rs`. Each of its records names a fault.
//!
//! `APP=faulty POLICY=skip cargo run -p integration-tests --example faulty`
//!
//! It reads `<APP>-in`, and writes to `<APP>-out`. Some policies write dead letters to `<APP>-dead`.

use std::collections::HashMap;
use std::env::var;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::bail;
use eos_core::{App, Backoff, ErrorPolicy, Failure, Topic};
use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    seq: u64,
    /// The fault that the record causes.
    does: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    seq: u64,
    #[serde(serialize_with = "written")]
    text: String,
}

fn written<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    match text {
        "unwritable" => Err(S::Error::custom("words fail")),
        _ => serializer.serialize_str(text),
    }
}

/// The number of tries of each record in this process.
static TRIES: Mutex<Option<HashMap<u64, u32>>> = Mutex::new(None);

fn tries(seq: u64) -> u32 {
    let mut tries = TRIES.lock().unwrap_or_else(PoisonError::into_inner);
    let count = tries.get_or_insert_default().entry(seq).or_default();
    *count += 1;
    *count
}

fn line(order: Order) -> Result<Line, Failure> {
    let Order { seq, does } = order;
    let text = match does.as_str() {
        "fail" => return Err("out of stock".into()),
        "flaky" if tries(seq) <= 2 => return Err("not yet".into()),
        "panic" => panic!("at the disco"),
        "large" => "x".repeat(5_000),
        "wide" => "x".repeat(3_800),
        _ => does,
    };
    Ok(Line { seq, text })
}

fn policy(name: &str, dead: &str) -> anyhow::Result<ErrorPolicy> {
    Ok(match name {
        "skip" => ErrorPolicy::skip(),
        "dead-letter" => ErrorPolicy::dead_letter(dead),
        "retry" => ErrorPolicy::retry(2, Backoff::fixed(Duration::from_millis(20)))
            .then(ErrorPolicy::dead_letter(dead)),
        other => bail!("POLICY={other}: skip, dead-letter or retry"),
    })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let name = var("APP")?;
    let policy = policy(&var("POLICY")?, &format!("{name}-dead"))?;
    let mut app = App::new(&name);
    app.source(&Topic::<String, Order>::json(&format!("{name}-in")))
        .on_error(policy)
        .try_map(line)
        .to(&Topic::json(&format!("{name}-out")));
    app.run(&var("EOS_BOOTSTRAP_SERVERS")?).await?;
    Ok(())
}
