//! Operators after a join. A result without a pair has its own stream time, which may be earlier than that of the last
//! record.

use eos_core::state::{SessionStore, SlidingStore};
use eos_core::windows::{Session, Sliding};

use super::*;

fn receipts() -> PlainTopic<String, String> {
    Topic::plain("receipts")
}

/// `p` has no pair. It arrives at the second join with the time 1086, after a result of 1090, and before it closes
/// there at 1087.
#[test]
fn a_join_of_a_join_loses_no_result_without_a_pair() {
    let mut app = App::new("a");
    let (left, right) = (app.source(&orders()), app.source(&shipments()));
    let first = Within::of(Duration::ZERO)
        .after(MS(5))
        .before(MS(10))
        .grace(MS(100));
    let second = Within::of(Duration::ZERO).before(MS(3_600)).grace(MS(106));
    let third = app.source(&receipts());
    join(Kind::Left, left, right, first)
        .to_stream()
        .left_join_within(third, second, &JoinStore::plain("second"), |l, r| match r {
            Some(r) => format!("{l}+{r}"),
            None => format!("{l}+none"),
        })
        .to(&results());
    let mut driver = TestDriver::new(app);
    let records = [
        ("<p", "k", 980),
        (">u", "k", 1_082),
        ("<x", "k", 1_090),
        ("<end", "other", 3_000),
        ("<end", "other", 9_000),
    ];
    pipe(&mut driver, &records);
    let of_key: Vec<_> = read(&mut driver)
        .into_iter()
        .filter(|it| it.starts_with("k "))
        .collect();
    assert_eq!(of_key, ["k p+-+none @980", "k x+u+none @1090"]);
}

/// The same in front of a session. The pair at 972 has a session until 1088.
#[test]
fn a_result_without_a_pair_finds_its_session_and_its_windows() {
    let of = |declare: fn(Stream<String, String>)| {
        let mut app = App::new("a");
        let (left, right) = (app.source(&orders()), app.source(&shipments()));
        let within = Within::of(MS(5)).grace(MS(100));
        declare(join(Kind::Left, left, right, within).to_stream());
        let mut driver = TestDriver::new(app);
        let records = [
            ("<q", "k", 972),
            (">v", "k", 972),
            ("<p", "k", 980),
            (">u", "k", 1_085),
            ("<x", "k", 1_090),
        ];
        pipe(&mut driver, &records);
        read(&mut driver)
    };
    let in_session = of(|stream| {
        stream
            .group_by_key()
            .windowed_by(Session::gap(MS(10)).grace(MS(106)))
            .count(&SessionStore::plain("sessions"))
            .to_stream()
            .process(|ctx, record| {
                let window = record.key.window;
                let count = record.value.map_or("deleted".to_owned(), |n| n.to_string());
                ctx.forward(
                    record.key.key,
                    format!("{}-{} {count}", window.start.0, window.end.0),
                )
            })
            .to(&results());
    });
    let expected = [
        "k 972-973 1 @972",
        "k 1090-1091 1 @1090",
        "k 972-973 deleted @972",
        "k 972-981 2 @980",
    ];
    assert_eq!(in_session, expected);
    let in_window = of(|stream| {
        stream
            .group_by_key()
            .windowed_by(Sliding::of(MS(10)).grace(MS(106)))
            .count(&SlidingStore::plain("sliding"))
            .to_stream()
            .process(|ctx, record| {
                let window = record.key.window;
                ctx.forward(
                    record.key.key,
                    format!("{}-{} {}", window.start.0, window.end.0, record.value),
                )
            })
            .to(&results());
    });
    let of_first = in_window.iter().filter(|it| !it.contains("@1090"));
    let expected = ["k 962-973 1 @972", "k 973-984 1 @980", "k 970-981 2 @980"];
    assert_eq!(of_first.collect::<Vec<_>>(), expected);
}
