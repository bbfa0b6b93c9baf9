//! Tests of the embedded broker and Apache Kafka with three clients.

mod both_brokers;
mod held_offsets;
mod java_clients;
mod librdkafka;
mod throughput;
