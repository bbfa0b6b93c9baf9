//! The app of `tests/kafka/calls.rs`: `APP=calls SERVICE=127.0.0.1:8080 cargo run -p integration-tests --example calls`
//!
//! It reads `<APP>-in`, sends each record to the service over HTTP, and writes the response to `<APP>-out`.

use std::env::var;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use eos_core::calls::Call;
use eos_core::{App, Backoff, Calls, PlainTopic, Topic};
use tokio::task::spawn_blocking;

/// The timeout of a call. The slowest response of the service takes 200 ms.
const TIME_OUT: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let name = var("APP")?;
    let service: Arc<SocketAddr> = Arc::new(var("SERVICE")?.parse()?);
    let calls = Calls::at_once(var("AT_ONCE")?.parse()?)
        .time_out(TIME_OUT)
        .retry(3, Backoff::fixed(Duration::from_millis(50)));
    let topic =
        |end: &str| -> PlainTopic<String, String> { Topic::plain(&format!("{name}-{end}")) };
    let mut app = App::new(&name);
    app.source(&topic("in"))
        .map_async_record("post", calls, move |call| {
            let service = Arc::clone(&service);
            async move { Ok(spawn_blocking(move || post(&service, &call)).await??) }
        })
        .to(&topic("out"));
    app.run(&var("EOS_BOOTSTRAP_SERVERS")?).await?;
    Ok(())
}

/// Sends a request with the id of the call as its idempotency key. Returns the body of the response.
fn post(service: &SocketAddr, call: &Call<String, String>) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(service, TIME_OUT)?;
    stream.set_read_timeout(Some(TIME_OUT))?;
    let body = format!("{} {}", call.key, call.value);
    write!(
        stream,
        "POST / HTTP/1.1\r\nHost: {service}\r\nIdempotency-Key: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        call.id,
        body.len()
    )?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    match response.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.to_owned()),
        _ => Err(std::io::Error::other(format!("response {response:?}"))),
    }
}
