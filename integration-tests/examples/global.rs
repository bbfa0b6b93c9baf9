//! The app of `tests/kafka/global.rs`: `APP=global cargo run -p integration-tests --example global`
//!
//! The values of `<APP>-in` are currencies. The app joins each with its rate in the global table of `<APP>-rates`, and
//! writes the result to `<APP>-out`.

use std::env::var;

use eos_core::{App, PlainTopic, Topic};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let name = var("APP")?;
    let topic =
        |end: &str| -> PlainTopic<String, String> { Topic::plain(&format!("{name}-{end}")) };
    let mut app = App::new(&name);
    let rates = app.global_table(&topic("rates").values::<Option<String>>(), "rates");
    app.source(&topic("in"))
        .join_global(
            &rates,
            |_, currency| currency.clone(),
            |currency, rate| format!("{currency}={rate}"),
        )
        .to(&topic("out"));
    app.run(&var("EOS_BOOTSTRAP_SERVERS")?).await?;
    Ok(())
}
