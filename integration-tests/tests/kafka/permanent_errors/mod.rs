//! Errors that need an operator, such as a missing right or a deleted topic. They stop an app with an error that names
//! the fix, and leave no transaction open. Temporary errors never stop an app.
//!
//! The brokers have an authorizer and no authentication, so a right that is denied to the app is denied to every
//! client. `cargo test -p integration-tests --test kafka permanent_errors:: -- --nocapture` runs the tests. With
//! `EOS_FULL=1`, each fault under a running app happens thirty times instead of ten.

pub(crate) mod feeder;
mod global;
mod passing;
mod recreated;
mod running;
mod starting;

use std::time::Duration;

use kafka_launcher::{ClusterOptions, own_for_tests};

use crate::common::{Case, With};
use anyhow::Result;
use eos_core::{App, Topic};
use feeder::Feeder;
use kafka_wire::{Operation, Resource};

const POINT: &str = "7 permanent errors";
const COMMAND: &str = "cargo xtask faults permanent_errors";

#[test]
fn what_a_person_must_mend_stops_the_app_and_what_passes_does_not() -> Result<()> {
    let options = ClusterOptions::default()
        .property(
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
        .property("allow.everyone.if.no.acl.found", "true")
        // Kafka's default. With it, a client that queries a deleted topic may create the topic again.
        .property("auto.create.topics.enable", "true")
        // Closes idle connections, as a proxy between an app and its brokers may do.
        .property("connections.max.idle.ms", "5000");
    let Some(cluster) = own_for_tests(&options)? else {
        return Ok(());
    };
    crate::common::each(
        &[
            ("while it runs", running::all),
            ("at the start", starting::all),
            ("a topic of the app's own", starting::own_topic),
            ("the topic of a global table", global::all),
            ("a topic is recreated", recreated::all),
            // The last case, because a quota applies to every client.
            ("what passes", passing::all),
        ],
        cluster.bootstrap(),
    )
}

/// Returns an app that copies numbered records.
fn copy(case: &Case) -> App {
    // If the app can no longer abort a transaction, the brokers abort it after this timeout. The default of half a
    // minute would slow the tests down.
    let mut app = case.app().with(
        "transaction.timeout.ms",
        Duration::from_secs(12).as_millis(),
    );
    app.source(&Topic::<String, serde_json::Value>::json(&case.input))
        .to(&Topic::json(&case.output));
    app
}

/// A resource to which a test can deny access.
#[derive(Clone, Copy)]
enum Place {
    Input,
    Output,
    Group,
    TransactionalIds,
}

impl Place {
    /// Denies the operation on the resource to all users.
    fn deny(self, case: &mut Case, operation: Operation) -> Result<()> {
        let name = self.name(case);
        case.client.deny(self.resource(&name), operation)
    }

    /// Removes the denial.
    fn allow(self, case: &mut Case) -> Result<()> {
        let name = self.name(case);
        case.client.allow(self.resource(&name))
    }

    fn name(self, case: &Case) -> String {
        match self {
            Place::Input => case.input.clone(),
            Place::Output => case.output.clone(),
            Place::Group => case.app.clone(),
            Place::TransactionalIds => format!("{}-", case.app),
        }
    }

    fn resource(self, name: &str) -> Resource<'_> {
        match self {
            Place::Input | Place::Output => Resource::Topic(name),
            Place::Group => Resource::Group(name),
            Place::TransactionalIds => Resource::TransactionalIds(name),
        }
    }
}
