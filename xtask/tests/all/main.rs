//! What users and tests of this crate rely on: clusters, commands, and the client of the wire protocol.

mod compose;
mod embedded;
mod held_offsets;
mod launcher;
mod local;
