//! PostgreSQL for eos: the rows of a stream and the positions of its records in one SQL transaction.
//!
//! [`Postgres`] is a ledger of an app. Install its tables once with [`install`], describe tables with
//! [`Postgres::table`], and run the app.
//!
//! | feature | |
//! |---|---|
//! | `tls` | encrypted connections, with rustls |
//! | `testing` | temporary servers of an installed PostgreSQL |

#![forbid(unsafe_code)]

mod actor;
mod apply;
mod array;
mod catalog;
mod check;
mod connect;
mod control;
mod counters;
#[cfg_attr(
    not(feature = "testing"),
    allow(unreachable_pub, reason = "only tests remove a defence")
)]
mod defence;
mod error;
mod ledger;
mod place;
mod positions;
mod postgres;
mod prune;
mod row;
mod schema;
mod session;
mod sql;
mod sqlstate;
mod stream;
mod table;
mod targets;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;
mod tx;
mod url_error;
mod value;

pub use apply::Apply;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use defence::Defence;
pub use place::Refused;
pub use postgres::Postgres;
pub use prune::prune_inbox;
pub use schema::{InstallError, VERSION as SCHEMA_VERSION, install, schema_files};
pub use stream::PostgresStream;
pub use table::{Inbox, SqlTable, Statement};
pub use tokio_postgres;
pub use tx::Tx;
pub use url_error::UrlError;
pub use value::{AnyType, Column, Json, KeyColumn, Kind, Numeric, Summand, Version};
