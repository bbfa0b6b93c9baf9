//! Tests of clusters, commands and the wire protocol's client.

mod compose;
mod embedded;
mod held_offsets;
mod launcher;
mod local;
