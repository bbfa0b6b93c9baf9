//! The Kafka adapter: the one module that names rdkafka.
