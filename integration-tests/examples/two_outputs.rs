//! The app of `tests/kafka/crash_sweep.rs` and `tests/kafka/zombies.rs`:
//! `APP=sweep cargo run -p integration-tests --example two_outputs --features failpoints`
//!
//! It reads `<APP>-in` and writes each record to `<APP>-a` and `<APP>-b`, with the id of its process.

use std::env::var;

use eos_core::{App, Topic};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Input {
    seq: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    seq: u64,
    by: u32,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let (name, by) = (var("APP")?, std::process::id());
    let mut app = App::new(&name);
    let [a, b] =
        ["a", "b"].map(|end| app.output(&Topic::<String, Line>::json(&format!("{name}-{end}"))));
    app.source(&Topic::<String, Input>::json(&format!("{name}-in")))
        .for_each(move |ctx, record| {
            let line = || Line {
                seq: record.value.seq,
                by,
            };
            ctx.emit(&a, record.key.clone(), line())?;
            ctx.emit(&b, record.key.clone(), line())
        });
    app.run(&var("EOS_BOOTSTRAP_SERVERS")?).await?;
    Ok(())
}
