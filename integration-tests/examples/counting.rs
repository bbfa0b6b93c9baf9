//! The app of the soak and broken-state tests.
//!
//! `APP=count cargo run -p integration-tests --example counting --features failpoints`
//!
//! It counts the records of `<APP>-in` by their keys in the store `counts`, and writes each count to
//! `<APP>-out`. With `LEAK=1` it leaks memory, files and threads.

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
    app.source(&Topic::<String, String>::plain(&format!("{name}-in")))
        .group_by_key()
        .count(&KeyValueStore::<String, u64>::plain("counts"))
        .to(&Topic::plain(&format!("{name}-out")));
    app.run(&var("EOS_BOOTSTRAP_SERVERS")?).await?;
    Ok(())
}

/// The planted leak: a megabyte, a file and a thread every second.
fn leak() {
    let mut leaked = Vec::new();
    loop {
        let memory = vec![1_u8; 1 << 20];
        leaked.push((memory, File::open("/dev/null"), thread::spawn(thread::park)));
        thread::sleep(Duration::from_secs(1));
    }
}
