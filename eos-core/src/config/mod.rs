//! An app's configuration: which properties there are, where they come from, and what must hold
//! between them. Pure: nothing here asks a broker or names librdkafka.
//!
//! ```text
//! code < file < environment      given:      (key, value, where it was said)
//!            ↓                   table:      is there such a key, is it the user's, is this a value?
//!        Settings                check:      do the values fit together?
//!        └ properties            settings:   the rest, for each client
//! ```
//!
//! A deployment overrides the program, so that one binary runs everywhere.

mod check;
#[cfg(test)]
mod docs;
mod environment;
mod error;
mod given;
mod properties;
mod resolve;
mod secret;
mod settings;
pub(crate) mod table;

pub use error::SettingsError;
pub use given::Origin;
#[cfg(feature = "kafka")]
pub(crate) use {secret::secrets_among, settings::Properties};

pub(crate) use settings::{Protocol, Settings};
