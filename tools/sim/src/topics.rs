//! The names that the simulated apps share.

/// The app's name, and its group.
pub(crate) const APP: &str = "sim";
/// The input of every shape.
pub(crate) const INPUT: &str = "in";
/// The outputs of most shapes. Every record leads to one in each of these.
pub(crate) const OUTPUTS: [&str; 2] = ["out", "copy"];
