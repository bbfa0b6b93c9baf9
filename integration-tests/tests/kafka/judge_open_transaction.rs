//! The judge on a real broker. It names an open transaction, and the run is clean once the transaction has ended.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use integration_tests::judge::{Expectation, Question};
use kafka_launcher::for_tests;
use kafka_wire::{Client, End, TransactionalProducer};

const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn a_hanging_transaction_is_named_and_its_end_makes_the_run_clean() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let bootstrap = kafka.bootstrap();
    let mark = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let named = |name: &str| format!("{name}-{mark:x}");
    let (input, output, group) = (named("in"), named("out"), named("app"));
    let mut client = Client::connect(bootstrap, TIMEOUT)?;
    client.create_topic(&input, 1, 1, &[])?;
    client.create_topic(&output, 1, 1, &[])?;

    let (first, second) = (("k", r#"{"seq":0}"#), ("k", r#"{"seq":1}"#));
    let mut source = TransactionalProducer::new(bootstrap, &named("source"), TIMEOUT)?;
    source.send(&input, 0, &[first, second])?;
    source.end(End::Commit)?;
    let mut app = TransactionalProducer::new(bootstrap, &group, TIMEOUT)?;
    app.send(&output, 0, &[first])?;
    app.send_offset(&group, &input, 0, 1)?;
    app.end(End::Commit)?;
    app.send(&output, 0, &[second])?;
    app.send_offset(&group, &input, 0, 2)?;

    let mut question = Question {
        bootstrap,
        input: &input,
        outputs: &[output],
        group: &group,
        transactional_prefix: group.clone(),
        patience: Duration::ZERO,
    };
    let (_, verdict) = question.judge(Expectation::Behind)?;
    // The end of the output, the transactional id, and the offsets of the group.
    assert_eq!(verdict.open.count, 3, "{verdict:?}");

    app.end(End::Commit)?;
    question.patience = TIMEOUT;
    let (_, verdict) = question.judge(Expectation::Finished)?;
    assert!(verdict.is_clean(), "{verdict:?}");
    Ok(())
}
