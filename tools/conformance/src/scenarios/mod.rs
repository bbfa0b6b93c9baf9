//! Scenarios by group.

mod admin;
mod fencing;
mod groups;
mod idempotence;
mod log;
mod offsets;
mod transactional_offsets;
mod transactions;

use anyhow::Result;

use crate::world::{Scenario, World};

/// The name of a scenario and its code.
type Script = (&'static str, fn(&World) -> Result<()>);

/// Returns every scenario.
pub fn all() -> Vec<Scenario> {
    let groups = [
        ("log", log::ALL),
        ("idempotence", idempotence::ALL),
        ("transactions", transactions::ALL),
        ("fencing", fencing::ALL),
        ("transactional offsets", transactional_offsets::ALL),
        ("offsets", offsets::ALL),
        ("groups", groups::ALL),
        ("admin", admin::ALL),
    ];
    let of_group = |(group, scripts): (&'static str, &'static [Script])| {
        let scripts = scripts.iter();
        scripts.map(move |&(name, run)| Scenario { group, name, run })
    };
    groups.into_iter().flat_map(of_group).collect()
}
