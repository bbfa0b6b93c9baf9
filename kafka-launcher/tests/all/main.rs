//! Clusters start, take abuse, and leave nothing behind; `docker-compose.yml` describes the same ones.

mod compose;
mod launcher;
