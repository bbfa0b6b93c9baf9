//! Creates topics.
//!
//! `rd_kafka_CreateTopics` goes to the controller. It does not look up leaders (docs/design/0012) or a coordinator
//! (docs/design/0020), unlike other admin calls. Only `rd_kafka_admin_worker` processes it, on librdkafka's main
//! thread.

use std::time::Duration;

use eos_client::{NewTopic, Result};
use eos_protocol::{CallSite, TopicName, code};

use super::config::KafkaConfig;
use super::inquiry::{Inquiry, passes};

/// Creates topics. Returns a result for each of them, in the same order.
pub(super) fn create_topics(
    config: &KafkaConfig,
    topics: &[NewTopic],
    within: Duration,
) -> Result<Vec<(TopicName, Result<()>)>> {
    // librdkafka rejects an empty request.
    if topics.is_empty() {
        return Ok(Vec::new());
    }
    let call = CallSite::CreateTopics;
    let inquiry = Inquiry::open(config, "eos-topics", within)?;
    let outcomes = inquiry.ask(
        |within| {
            let Inquiry {
                client, answers, ..
            } = &inquiry;
            client.ask_to_create(topics, within, answers)
        },
        |event| {
            let outcomes = event.created();
            // A repeated request for all topics is harmless: existing topics are a success.
            let again = outcomes.iter().find_map(|(_, outcome)| {
                let failure = outcome.as_ref().err()?;
                passes(failure.fault.code).then(|| failure.clone())
            });
            again.map_or(Ok(outcomes), Err)
        },
    );
    let outcomes = outcomes.map_err(|failure| inquiry.explain(failure, call))?;
    let outcome = |topic: &NewTopic| {
        let mut outcomes = outcomes.iter();
        match outcomes.find(|(name, _)| name == topic.name.as_str()) {
            Some((_, Err(failure))) if failure.fault.code != code::TOPIC_ALREADY_EXISTS => {
                Err(inquiry.client.clean(failure.clone()).at(call))
            }
            _ => Ok(()),
        }
    };
    let answers = topics.iter().map(|t| (t.name.clone(), outcome(t)));
    Ok(answers.collect())
}
