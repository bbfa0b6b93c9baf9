//! The app of `tests/kafka/state_sweep.rs`, and of controls in `tests/exclusive/counts.rs` and `tests/soak/hour.rs`:
//! `APP=words cargo run -p integration-tests --example word_count --features failpoints`
//!
//! It takes the values of `<APP>-in` for words between blanks, brings all of one word into one task, counts them in the
//! store `counts`, and writes each count to `<APP>-out`. With `LEAK=1` it leaks memory, files and threads.

use std::env::var;
use std::fs::File;
use std::thread;
use std::time::Duration;

use eos_core::{App, KeyValueStore, Topic};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    if var("LEAK").is_ok() {
        thread::spawn(leak);
    }
    let name = var("APP")?;
    let workers = var("WORKERS").ok().and_then(|n| n.parse().ok());
    let mut app = App::new(&name);
    app.workers(workers.unwrap_or(1));
    app.source(&Topic::<Option<String>, String>::plain(&format!(
        "{name}-in"
    )))
    .flat_map(|line| {
        let words = line.split(' ').map(str::to_owned);
        words.collect::<Vec<_>>()
    })
    .key_by(|word| word.clone())
    .repartition(&Topic::<String, String>::plain("words"))
    .group_by_key()
    .count(&KeyValueStore::<String, u64>::plain("counts"))
    .to(&Topic::plain(&format!("{name}-out")));
    app.run(&var("EOS_BOOTSTRAP_SERVERS")?).await?;
    Ok(())
}

/// The planted leak: a megabyte, a file and a thread each second.
fn leak() {
    let mut leaked = Vec::new();
    loop {
        leaked.push((
            vec![1_u8; 1 << 20],
            File::open("/dev/null"),
            thread::spawn(thread::park),
        ));
        thread::sleep(Duration::from_secs(1));
    }
}
