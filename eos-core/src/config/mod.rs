//! The configuration of an app.
//!
//! This module has the table of properties, reads their sources, and checks their values. It needs neither a broker nor
//! librdkafka.
//!
//! ```text
//! code < file < environment      given:      (key, value, origin)
//!            ↓                   table:      is the key known, may it be set, is the value valid?
//!        Settings                check:      do the values fit together?
//!        └ properties            settings:   the properties of librdkafka, for each client
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
