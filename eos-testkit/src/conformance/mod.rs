//! What a codec or a store engine of your own has to pass.
//!
//! - [`codecs`]: how values become bytes, and the bytes of keys of ordered stores
//! - `stores`: a store engine beside a model, and one whose process dies between any two writes. With the
//!   feature `store-conformance`; it is `eos_state::conformance`.
//!
//! They check from outside, by what the public traits promise and the runtime relies on, and the ones that eos
//! brings along pass the same.

pub mod codecs;

#[cfg(feature = "store-conformance")]
pub use eos_state::conformance as stores;
