//! A backlog in front of a repartition topic.

use std::collections::BTreeMap;
use std::time::Duration;

use eos_core::codec::{Json, Plain};
use eos_core::state::WindowStore;
use eos_core::windows::Tumbling;
use eos_core::{App, PlainTopic, Timestamp, Topic};
use eos_testkit::{Input, TestDriver};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

fn views() -> PlainTopic<String, String> {
    Topic::plain("views")
}

/// The guide's pages per hour, after a long stop. The tasks of the first stage go through the backlog side by side, also
/// those of partitions with few records.
#[test]
fn a_backlog_in_several_partitions_is_not_late_behind_a_repartition_topic() {
    let hours = || Topic::<String, u64>::plain("hours-out");
    let app = || {
        let mut app = App::new("a");
        app.source(&views())
            .key_by(|page: &String| page.clone())
            .repartition(&Topic::plain("pages"))
            .group_by_key()
            .windowed_by(Tumbling::of(HOUR).grace(MINUTE))
            .count(&WindowStore::plain("of-pages"))
            .to_stream()
            .rekey(|count| ("all".to_owned(), (count.key.key, count.value)))
            .repartition(&Topic::with("hours", Plain, Json))
            .group_by_key()
            .windowed_by(Tumbling::of(HOUR).grace(2 * MINUTE))
            .aggregate(
                &WindowStore::with("sums", Plain, Json),
                BTreeMap::<String, u64>::new,
                |_, (page, count), mut counts| {
                    counts.insert(page, count);
                    counts
                },
            )
            .emit_on_close()
            .key_by_record(|result| result.key.window.start.0.to_string())
            .map(|counts| counts.values().sum::<u64>())
            .to(&Topic::plain("hours-out"));
        app
    };
    let mut driver = TestDriver::builder().partitions("views", 6).start(app());
    driver.kill();
    let mut expected = [0_u64; 3];
    for second in 0..3 * 3_600_i64 {
        // Partition 0 has a record each second, partition 5 one in 32 seconds.
        for partition in 0..6 {
            if second % (1 << partition) == 0 {
                let record = Input::new(format!("u{partition}"), format!("p{}", second % 7));
                let record = record.at(Timestamp(second * 1_000 + i64::from(partition)));
                driver.pipe_input(&views(), record.to_partition(partition));
                expected[usize::try_from(second / 3_600).unwrap()] += 1;
            }
        }
    }
    driver.restart();
    driver.pipe_at(&views(), "end", "end", Timestamp(5 * 3_600_000));
    assert_eq!(driver.metrics().unwrap().totals.late_records, 0);
    let found = driver.read(&hours()).into_iter();
    let found: Vec<_> = found.map(|it| (it.key, it.value)).collect();
    let expected = (0..).zip(expected).map(|(hour, count)| {
        let start = hour * 3_600_000_u64;
        (start.to_string(), count)
    });
    assert_eq!(found, expected.collect::<Vec<_>>());
}
