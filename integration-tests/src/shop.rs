//! Decides from Kafka and PostgreSQL whether an app booked each order exactly once.
//!
//! The app reads a topic of orders. It inserts each order into `bookings`, and subtracts its units from `stock`. An order
//! without units violates a constraint of `bookings`, and is expected in `eos.dead_letters`.
//!
//! The evidence comes from the topic and from `psql`. No code of the framework is involved. The judge reads no other
//! table of the framework than `eos.dead_letters` and `eos.positions`.

mod psql;
mod read;
mod verdict;

pub use psql::psql;
pub use read::{Question, read, torn_now};
pub use verdict::{Booking, Evidence, Finding, Letter, Order, Verdict, judge};

/// The units of each article before the first order.
pub const OPENING: i64 = 1_000_000;
/// The number of articles. Orders of all partitions share them.
pub const ARTICLES: usize = 24;

/// The statements that create the tables of the shop.
///
/// `bookings` has no unique key, which would hide a second booking.
#[must_use]
pub fn tables() -> String {
    format!(
        "CREATE TABLE bookings (order_id text NOT NULL, sku text NOT NULL, \
           units bigint NOT NULL CHECK (units > 0)); \
         CREATE TABLE stock (sku text PRIMARY KEY, units bigint NOT NULL); \
         INSERT INTO stock SELECT 's' || n, {OPENING} FROM generate_series(0, {}) AS n",
        ARTICLES - 1
    )
}
