//! Starts, observes and stops the workers of an app.

mod app_state;
mod books;
mod chores;
mod clock;
mod features;
#[cfg(feature = "rocksdb")]
mod flushing;
mod globals;
mod handle;
mod internal;
#[cfg(feature = "rocksdb")]
mod left_over;
mod membership;
mod missing;
mod observer;
#[cfg(feature = "rocksdb")]
mod on_disk;
#[cfg(feature = "rocksdb")]
mod open_databases;
mod preflight;
mod purging;
mod run;
mod signals;
mod slot;
mod stepped;
mod supervise;
pub(crate) mod time_of_day;
mod watch;

pub use app_state::AppState;
pub use globals::GlobalError;
pub use handle::{Handle, Running};
pub use internal::{UncreatedTopic, Unfit, UnfitTopic};
pub use missing::MissingTopic;
pub use preflight::PreflightError;
pub use slot::SlotError;
pub use stepped::{Process, Stepped};

#[cfg(feature = "rocksdb")]
pub use on_disk::on_disk;
pub(crate) use run::start;
pub(crate) use signals::Signals;
