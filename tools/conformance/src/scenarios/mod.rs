//! What is compared.

mod admin;
mod fencing;
mod groups;
mod idempotence;
mod log;
mod offsets;
mod transactional_offsets;
mod transactions;

use crate::world::Scenario;

/// Every scenario.
pub fn all() -> Vec<Scenario> {
    [
        log::ALL,
        idempotence::ALL,
        transactions::ALL,
        fencing::ALL,
        transactional_offsets::ALL,
        offsets::ALL,
        groups::ALL,
        admin::ALL,
    ]
    .concat()
}

/// A table of scenarios: each function under its own name.
macro_rules! scenarios {
    ($group:literal: $($name:ident),* $(,)?) => {
        pub(super) const ALL: &[$crate::world::Scenario] = &[
            $($crate::world::Scenario { group: $group, name: stringify!($name), run: $name }),*
        ];
    };
}
use scenarios;
