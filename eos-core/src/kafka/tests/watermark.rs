//! How far a partition goes, beyond what may be read.

use super::support::{Fixture, close, offset, partition, ready, send, take, take_over, until};
use crate::client::{Producer, Source};

#[test]
fn the_high_watermark_counts_what_an_open_transaction_holds_back() {
    let Some(mut fixture) = Fixture::new("watermark") else {
        return;
    };
    let topic = fixture.topic("in", 2);
    fixture.fill(&topic, 0, 5);
    let mut producer = fixture.producer(&[&topic]);
    ready(|slice| producer.init(slice)).unwrap();
    producer.begin().unwrap();
    send(&mut producer, 0, 0, "held back");
    send(&mut producer, 0, 0, "this, too");
    ready(|slice| producer.flush(slice)).unwrap();

    let mut source = fixture.source();
    let (p0, p1) = (partition(&topic, 0), partition(&topic, 1));
    source.subscribe(std::slice::from_ref(&topic)).unwrap();
    assert_eq!(source.high(&p0), None, "not assigned yet");
    take_over(&mut source);
    take(&mut source, &p0, 5);
    let heard = |source: &mut _, of: &_, at| {
        until("high watermark", || {
            (Source::high(source, of) == Some(offset(at))).then_some(())
        });
    };
    heard(&mut source, &p0, 7);
    heard(&mut source, &p1, 0);
    let bounds = ready(|slice| source.bounds(std::slice::from_ref(&p0), slice)).unwrap();
    assert_eq!(bounds[0].end, offset(5), "nothing of it may be read");

    ready(|slice| producer.abort(slice)).unwrap();
    heard(&mut source, &p0, 8);
    source.unassign(&[p0.clone(), p1]).unwrap();
    assert_eq!(source.high(&p0), None, "another one's now");
    close(source);
}
