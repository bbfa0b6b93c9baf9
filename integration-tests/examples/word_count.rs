//! The app of `tests/kafka/state_sweep.rs` and of the control in `tests/exclusive/counts.rs`:
//! `APP=words cargo run -p integration-tests --example word_count --features failpoints`
//!
//! It splits the values of `<APP>-in` at blanks, sends all occurrences of one word to one task, counts them in the
//! store `counts`, and writes each count to `<APP>-out`.

use std::env::var;

use eos_core::{App, KeyValueStore, Topic};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
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
