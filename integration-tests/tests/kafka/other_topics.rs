//! The next version of an app reads other topics than the previous one.

use kafka_launcher::for_tests;

use crate::common::{Case, PATIENCE, With, ended};
use anyhow::Result;
use eos_core::run::StopMode;
use eos_core::{App, Topic};
use integration_tests::wait::wait_until;

/// If a static member returns, the coordinator assigns its previous partitions, even if its subscription has changed
/// (KIP-345).
#[test]
fn a_topic_that_is_new_is_read_and_one_that_is_gone_is_not_held() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let mut case = Case::with_partitions(kafka.bootstrap(), "versions", 2)?;
    let second = format!("{}-second", case.input);
    case.client
        .create_topic(&second, 2, 1, &crate::common::KEEP)?;
    let of_both = [case.input.clone(), second.clone()];
    let (app, output) = (|| case.app(), case.output.clone());
    let read = |topics: &[String]| -> App {
        let mut app = app().with("session.timeout.ms", 6000);
        for topic in topics {
            app.source(&Topic::<String, String>::plain(topic))
                .to(&Topic::plain(&output));
        }
        app
    };
    let versions = [read(&of_both[..1]), read(&of_both), read(&of_both[1..])];
    let sources = [&of_both[..1], &of_both[..], &of_both[1..]];
    let mut expected = 0;
    for (app, topics) in versions.into_iter().zip(sources) {
        let mut running = app.start_blocking(&case.bootstrap)?;
        for topic in topics {
            let mut producer = kafka_wire::Producer::new(&case.bootstrap)?;
            producer.send(topic, 0, Some(b"k"), Some(b"v"), &[], 1_000)?;
            producer.flush()?;
            expected += 1;
        }
        wait_until(PATIENCE, "all is read", || {
            Ok(case.output()?.len() >= expected)
        })?;
        running.handle().stop(StopMode::Restart);
        ended(&mut running)??;
    }
    Ok(())
}
