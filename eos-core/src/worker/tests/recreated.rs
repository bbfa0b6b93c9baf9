//! An input that is another topic now.

use super::*;
use eos_protocol::state::TopicUuid;

#[test]
fn an_input_made_anew_stops_the_worker_and_nothing_open_is_committed() {
    let mut bench = Bench::running();
    let committed = bench.committed(0);
    bench.feed(0, &["a", "b"]);
    bench.step();
    let event = SourceEvent::Recreated {
        topic: "in".into(),
        before: TopicUuid(1),
        now: TopicUuid(2),
    };
    bench.kafka.event("app-i-0-consumer", event);
    let error = bench.end().unwrap_err();
    let WorkerError::Recreated {
        before: TopicUuid(1),
        now: TopicUuid(2),
        ..
    } = &error
    else {
        panic!("{error}");
    };
    let text = error.to_string();
    for part in [
        "the input topic in was deleted and made anew",
        "AAAAAAAAAAAAAAAAAAAAAQ",
        "AAAAAAAAAAAAAAAAAAAAAg",
        "kafka-consumer-groups.sh --delete-offsets --group app --topic in)",
    ] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    assert_eq!(bench.committed(0), committed);
    let calls = bench.kafka.calls();
    assert!(calls.contains(&"abort".to_owned()), "{calls:?}");
}
