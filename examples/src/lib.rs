//! What the examples share: where Kafka is, where logs go, and the input's type.

use serde::{Deserialize, Serialize};

/// A city of the GeoNames data set, as the generator writes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct City {
    /// Its running number in the input.
    pub seq: u64,
    /// Its name.
    pub name: String,
    /// The country's ISO code.
    pub country: String,
    /// Degrees north.
    pub lat: f64,
    /// Degrees east.
    pub lon: f64,
}

/// `KAFKA_BOOTSTRAP_SERVERS`, else a Kafka on this machine's usual port.
#[must_use]
pub fn bootstrap_servers() -> String {
    std::env::var("KAFKA_BOOTSTRAP_SERVERS").unwrap_or_else(|_| "localhost:9092".to_owned())
}

/// Sends the log to stderr; `RUST_LOG` says how much of it (`info` if unset).
pub fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| "info".into()))
        .with_writer(std::io::stderr)
        .init();
}
