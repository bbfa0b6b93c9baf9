//! The app of the tests that break state: `APP=count cargo run -p integration-tests --example counting
//! --features failpoints`
//!
//! It counts the records of `<APP>-in` by their keys in the store `counts`, and writes each count to
//! `<APP>-out`.

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
    let mut app = App::new(&name);
    app.source(&Topic::<String, String>::plain(&format!("{name}-in")))
        .group_by_key()
        .count(&KeyValueStore::<String, u64>::plain("counts"))
        .to(&Topic::plain(&format!("{name}-out")));
    app.run(&var("EOS_BOOTSTRAP_SERVERS")?).await?;
    Ok(())
}
