//! Deduplication by record id.

mod error;
mod operator;
mod seen_ids;

pub use eos_protocol::identity::{Seen, SeenWindowError};
pub use error::IdentityError;
pub use operator::{ContentId, Dedup, Judged};
pub use seen_ids::SeenIds;
pub(crate) use seen_ids::{SeenFor, encode_key};
