//! Clusters start, survive faults, and leave nothing behind.
//!
//! `docker-compose.yml` describes the same clusters.

mod compose;
mod launcher;
