//! [`eos_testkit::TestDriver`]: what it does, and every operator with a crash at each of its effects.
#![allow(clippy::unwrap_used, reason = "tests")]

mod basics;
mod dying;
mod found;
mod larger;
mod many;
mod operators;
mod policies;
mod state;
mod topics;
mod windows;
