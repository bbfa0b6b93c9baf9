//! The broker that the demo runs on: embedded, started, or the user's own.

use std::time::Duration;

use anyhow::Result;
use eos_testkit::EmbeddedKafka;
use eos_testkit::broker::BrokerOptions;
use kafka_launcher::{Provided, VERSION, external, provide};

/// A broker, gone when dropped unless it is the user's.
#[derive(Debug)]
pub(crate) enum Broker {
    Kafka(Provided),
    /// In this process.
    Embedded {
        bootstrap: String,
        _kafka: EmbeddedKafka,
    },
}

impl Broker {
    /// The user's cluster if one is named, else a new one with one node.
    pub(crate) fn kafka() -> Result<Broker> {
        provide(1).map(Broker::Kafka)
    }

    /// The user's cluster if one is named, else the embedded broker.
    pub(crate) fn embedded() -> Result<Broker> {
        if external().is_some() {
            return Broker::kafka();
        }
        let mut options = BrokerOptions::default();
        // Members that start together are assigned together, rather than one after the other.
        options.group_initial_rebalance_delay_ms = 200;
        let kafka = EmbeddedKafka::builder().options(options).start()?;
        Ok(Broker::Embedded {
            bootstrap: kafka.bootstrap(),
            _kafka: kafka,
        })
    }

    /// Where clients connect.
    pub(crate) fn bootstrap(&self) -> &str {
        match self {
            Broker::Kafka(provided) => provided.bootstrap(),
            Broker::Embedded { bootstrap, .. } => bootstrap,
        }
    }

    pub(crate) fn is_external(&self) -> bool {
        matches!(self, Broker::Kafka(Provided::External { .. }))
    }

    /// What and where it is, for people.
    pub(crate) fn opening(&self, took: Duration) -> String {
        match self {
            Broker::Kafka(Provided::External { bootstrap }) => format!("Kafka at {bootstrap}"),
            Broker::Kafka(Provided::Started(cluster)) => format!(
                "Kafka {VERSION} at {}, started in {:.1} s",
                cluster.bootstrap(),
                took.as_secs_f64()
            ),
            Broker::Embedded { bootstrap, .. } => {
                format!("The embedded broker at {bootstrap}, not Apache Kafka (that is --kafka)")
            }
        }
    }

    /// The end of a started broker's log: one that died is the likelier cause of another failure.
    pub(crate) fn log_tail(&self) -> String {
        match self {
            Broker::Kafka(Provided::Started(cluster)) => {
                format!("\n\nThe end of Kafka's own log:\n{}", cluster.log_tail(8))
            }
            Broker::Kafka(Provided::External { .. }) | Broker::Embedded { .. } => String::new(),
        }
    }
}
