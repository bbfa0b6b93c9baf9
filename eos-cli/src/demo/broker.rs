//! The broker that the demo runs on: embedded, started, or the user's own.

use std::time::Duration;

use anyhow::Result;
use eos_broker::EmbeddedKafka;
use eos_broker::broker::BrokerOptions;
use kafka_launcher::{Provided, VERSION, external, provide};

/// A broker. It stops on drop, unless it is the user's.
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
    /// Returns the user's cluster if one is named, else a new one with one node.
    pub(crate) fn kafka() -> Result<Broker> {
        provide(1).map(Broker::Kafka)
    }

    /// Returns the user's cluster if one is named, else the embedded broker.
    pub(crate) fn embedded() -> Result<Broker> {
        if external().is_some() {
            return Broker::kafka();
        }
        let mut options = BrokerOptions::default();
        // Gives members that start together one common assignment, rather than one after the other.
        options.group_initial_rebalance_delay_ms = 200;
        let kafka = EmbeddedKafka::builder().options(options).start()?;
        Ok(Broker::Embedded {
            bootstrap: kafka.bootstrap(),
            _kafka: kafka,
        })
    }

    /// Returns the address for clients.
    pub(crate) fn bootstrap(&self) -> &str {
        match self {
            Broker::Kafka(provided) => provided.bootstrap(),
            Broker::Embedded { bootstrap, .. } => bootstrap,
        }
    }

    pub(crate) fn is_external(&self) -> bool {
        matches!(self, Broker::Kafka(Provided::External { .. }))
    }

    /// Returns the kind and the address of the broker, as text for people.
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

    /// Returns the end of the log of a started broker. If the broker died, this is the likely cause
    /// of another failure.
    pub(crate) fn log_tail(&self) -> String {
        match self {
            Broker::Kafka(Provided::Started(cluster)) => {
                format!("\n\nThe end of Kafka's own log:\n{}", cluster.log_tail(8))
            }
            Broker::Kafka(Provided::External { .. }) | Broker::Embedded { .. } => String::new(),
        }
    }
}
