//! The embedded broker beside Apache Kafka, seen by three clients: ours, librdkafka, and Java's.

mod both_brokers;
mod held_offsets;
mod java_clients;
mod librdkafka;
mod throughput;
