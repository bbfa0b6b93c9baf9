//! What nothing but a person can mend stops an app, with an error that names the fix, and leaves no
//! transaction open: a right that is taken away, a topic that is deleted. What passes by itself never
//! stops one.
//!
//! The brokers have an authorizer and no authentication: what is denied to the app is denied to every
//! client. `cargo test -p integration-tests --test kafka permanent_errors:: -- --nocapture`; with
//! `EOS_FULL=1` each fault under a running app happens thirty times instead of ten.

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
        // Kafka's default, and a trap: a client that queries a deleted topic may create it again.
        .property("auto.create.topics.enable", "true")
        // What stands between an app and its brokers may hang up on who is silent.
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
            // Last: a quota applies to every client.
            ("what passes", passing::all),
        ],
        cluster.bootstrap(),
    )
}

/// An app that copies numbered records.
fn copy(case: &Case) -> App {
    // What an app can't abort any more, the brokers abort: they need not take half a minute here.
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
