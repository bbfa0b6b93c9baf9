//! Deduplication by record id.

mod content_id;
mod error;
mod judged;
mod operator;
pub(crate) mod presets;
mod rows;
mod rule;
mod seen_ids;
mod selected;
mod selection;

pub use content_id::ContentId;
pub use eos_protocol::identity::{Seen, SeenWindowError, Sizing, TimedIdError, TimedIdFormat};
pub use error::IdentityError;
pub use judged::Judged;
pub use operator::{Dedup, Unselected};
pub(crate) use rule::{IdOf, Rule, Strictness};
pub use seen_ids::{KeyedSeenIds, SeenIds};
pub(crate) use seen_ids::{encode_key, shown};
pub use selected::Selected;
pub use selection::WholeValue;
