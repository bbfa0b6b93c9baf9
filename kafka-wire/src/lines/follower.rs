//! A follower of growing topics that returns lines of text.

use std::time::Duration;

use anyhow::Result;

use super::render;
use crate::{Client, Isolation};

const PATIENCE: Duration = Duration::from_secs(20);

/// Reads the committed records of some topics, each record once.
#[derive(Debug)]
pub struct Follower {
    client: Client,
    topics: Vec<Topic>,
}

#[derive(Debug)]
struct Topic {
    name: String,
    /// The next offset of each partition.
    next: Vec<i64>,
}

impl Follower {
    /// Starts at the beginning of each topic.
    ///
    /// # Errors
    /// If no broker responds at that address, or a topic does not exist.
    pub fn new(bootstrap: &str, topics: &[&str]) -> Result<Follower> {
        let mut client = Client::connect(bootstrap, PATIENCE)?;
        let topics = topics.iter().map(|name| {
            Ok(Topic {
                name: (*name).to_owned(),
                next: client.start_offsets(name)?,
            })
        });
        let topics = topics.collect::<Result<_>>()?;
        Ok(Follower { client, topics })
    }

    /// Passes `each` every record that was committed since the last call: the name of the topic and the line that
    /// `kafka read` prints.
    ///
    /// # Errors
    /// If a broker does not respond in time.
    pub fn read(&mut self, mut each: impl FnMut(&str, String)) -> Result<()> {
        for topic in &mut self.topics {
            let ends = self
                .client
                .end_offsets(&topic.name, Isolation::ReadCommitted)?;
            for (partition, (next, end)) in (0..).zip(topic.next.iter_mut().zip(ends)) {
                while *next < end {
                    let name = &topic.name;
                    let fetched =
                        self.client
                            .fetch(name, partition, *next, Isolation::ReadCommitted)?;
                    for record in &fetched.records {
                        each(name, render(partition, record, false));
                    }
                    *next = fetched.next_offset;
                }
            }
        }
        Ok(())
    }
}
