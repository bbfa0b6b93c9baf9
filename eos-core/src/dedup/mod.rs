//! Deduplication by record id.

mod error;
mod operator;
pub mod presets;
mod rows;
mod seen_ids;
mod selection;

pub use eos_protocol::identity::{Seen, SeenWindowError, Sizing, TimedIdError, TimedIdFormat};
pub use error::IdentityError;
pub use operator::{Dedup, Judged, Unselected};
pub(crate) use seen_ids::encode_key;
pub use seen_ids::{KeyedSeenIds, SeenIds};
pub use selection::{ContentId, Selected, WholeValue};
