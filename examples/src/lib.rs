//! What the examples share: a Kafka with something in it, where logs go, and the cities.
#![forbid(unsafe_code)]

use std::io::IsTerminal;

use serde::{Deserialize, Serialize};

mod kafka;

pub use kafka::{Input, Kafka};

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

/// 120 cities of GeoNames (<https://www.geonames.org>, CC BY 4.0), a line each: `region:{"seq":..}`. Two have
/// names of two letters, for `03-errors`.
pub const CITIES: &str = include_str!("../cities.txt");

/// Sends the log to stderr, in colour if that is a terminal; `RUST_LOG` says how much of it (`info` if
/// unset).
pub fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    let plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| "info".into()))
        .with_ansi(std::io::stderr().is_terminal() && !plain)
        .with_writer(std::io::stderr)
        .init();
}
