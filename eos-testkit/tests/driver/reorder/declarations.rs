//! The declarations around an order that the build accepts.

use eos_core::identity::{HighWatermarks, SeenIds, Sequence};

use super::*;

/// Windows behind it see each record at the end of its wait.
#[test]
fn windows_behind_it_need_a_grace() {
    let app = |grace| {
        let mut app = App::new("a");
        by_time(app.source(&input()))
            .ordered()
            .group_by_key()
            .windowed_by(Tumbling::of(ms(10)).grace(ms(grace)))
            .count(&WindowStore::plain("counts"))
            .emit_on_close()
            .without_windows()
            .map(|count| count.to_string())
            .to(&output());
        app
    };
    let text = app(99).describe().unwrap_err().to_string();
    assert!(
        text.contains("the order with the store waiting: the windows of the store counts would drop records as late")
            && text.contains("a grace of at least 100ms"),
        "{text}"
    );
    let scenario = |driver: &mut TestDriver| {
        pipe(
            driver,
            &[("a", 5), ("b", 12), ("c", 9), ("d", 9), ("end", 5_000)],
        );
        out(driver)
    };
    let mut driver = TestDriver::new(app(100));
    assert_eq!(scenario(&mut driver), ["3", "1"]);
    assert_eq!(driver.metrics().unwrap().totals.late_records, 0);
    crash_everywhere(|| TestDriver::new(app(100)), scenario);
}

#[test]
fn settings_that_can_not_work_are_refused() {
    let refused = |order: &dyn Fn(Stream<String, String>) -> Order, word: &str| {
        let app = app_with(ErrorPolicy::fail(), order, Order::ordered);
        let text = app.describe().unwrap_err().to_string();
        assert!(text.contains(word), "{text}");
    };
    refused(
        &|it| it.reorder_by_time(Duration::ZERO, &waiting()),
        "records wait for 0ns",
    );
    for gap in [0, 10_001] {
        let settings = Reorder::max_gap(gap)
            .max_wait(ms(1), Clock::Stream)
            .on_gap(OnGap::Fail);
        refused(
            &move |it| it.reorder_by(number, settings, &waiting()),
            "Set a gap from 1 to 10000",
        );
    }
    refused(
        &by_number(OnGap::DeadLetter),
        "the error policy of in has no dead-letter topic",
    );
}

/// A waiting record belongs to no source, so its letter needs one topic.
#[test]
fn two_dead_letter_topics_in_front_of_an_order_are_refused() {
    let mut app = App::new("a");
    let [left, right] = ["left", "right"].map(|name| {
        let source = app.source(&Topic::<String, String>::plain(name));
        source.on_error(ErrorPolicy::dead_letter(&format!("{name}-letters")))
    });
    let both = left.merge(right).reorder_by_time(ms(100), &waiting());
    both.ordered().to(&Topic::plain("out"));
    let text = app.describe().unwrap_err().to_string();
    let expected = "the dead-letter topics left-letters and right-letters";
    assert!(text.contains(expected), "{text}");
}

/// A deduplication would judge a record by the time at which it leaves the order. A step may be between them.
#[test]
fn a_deduplication_behind_an_order_is_refused() {
    let refused = |behind: &dyn Fn(Stream<String, String>) -> Stream<String, String>| {
        let orders: [&dyn Fn(Stream<String, String>) -> Order; 2] =
            [&by_time, &by_number(OnGap::PassOn)];
        for order in orders {
            let mut app = App::new("a");
            let ordered = order(app.source(&input())).ordered();
            behind(ordered).to(&output());
            let text = app.describe().unwrap_err().to_string();
            let expected = "the deduplication seen comes after this step";
            assert!(text.contains(expected), "{text}");
        }
    };
    refused(&|it| it.dedup(&SeenIds::fixed("seen", ms(100))).by(String::clone));
    refused(&|it| {
        let sequence = |value: &String| Sequence {
            producer: Some(value.clone()),
            epoch: 0,
            number: u128::from(number(value)),
        };
        let marks = HighWatermarks::new("seen");
        it.map(|value| value)
            .dedup_by_sequence(&marks, sequence)
            .accepted()
    });
}

/// Two orders in a row: the second one sees each record at the end of its first wait.
#[test]
fn an_order_behind_an_order_waits_at_least_as_long() {
    let app = |second| {
        app_with(
            ErrorPolicy::fail(),
            move |it| {
                let store = ReorderStore::plain("second");
                by_time(it).ordered().reorder_by_time(ms(second), &store)
            },
            Order::ordered,
        )
    };
    let text = app(99).describe().unwrap_err().to_string();
    assert!(
        text.contains("the order with the store second: records wait in the store waiting first, so they arrive here too late. Set a wait of at least 100ms"),
        "{text}"
    );
    let scenario = |driver: &mut TestDriver| {
        pipe(driver, &[("b", 20), ("a", 10), ("end", 500), ("more", 900)]);
        out(driver)
    };
    for second in [100, 150] {
        assert_eq!(
            scenario(&mut TestDriver::new(app(second))),
            ["a", "b", "end"]
        );
    }
    crash_everywhere(|| TestDriver::new(app(150)), scenario);
}

/// The final counts of windows with a grace of 50 ms.
fn final_counts(app: &mut App) -> Stream<String, String> {
    app.source(&input())
        .group_by_key()
        .windowed_by(Tumbling::of(ms(10)).grace(ms(50)))
        .count(&WindowStore::plain("finals"))
        .emit_on_close()
        .without_windows()
        .map(|count| count.to_string())
}

/// The waits of several orders add up, and final results of windows are held back as well.
#[test]
fn steps_behind_several_orders_wait_for_all_of_them() {
    let windows = |grace| {
        let mut app = App::new("a");
        let first = by_time(app.source(&input())).ordered();
        let store = ReorderStore::plain("second");
        let numbered = first.reorder_by(number, settings(OnGap::PassOn), &store);
        counted(numbered.drop_late().ordered(), grace);
        app.describe().map(|_| ())
    };
    let text = windows(199).unwrap_err().to_string();
    assert!(
        text.contains("the order with the store waiting") && text.contains("at least 200ms"),
        "{text}"
    );
    windows(200).unwrap();
    let results = |grace| {
        let mut app = App::new("a");
        let counts = final_counts(&mut app);
        counted(
            by_number(OnGap::PassOn)(counts).drop_late().ordered(),
            grace,
        );
        app.describe().map(|_| ())
    };
    let text = results(150).unwrap_err().to_string();
    assert!(text.contains("counts") && text.contains("151ms"), "{text}");
    results(151).unwrap();
    let order = |within| {
        let mut app = App::new("a");
        let counts = final_counts(&mut app);
        let ordered = counts.reorder_by_time(ms(within), &waiting());
        ordered.ordered().to(&output());
        app.describe().map(|_| ())
    };
    let text = order(49).unwrap_err().to_string();
    assert!(
        text.contains("the order with the store waiting: records wait in the store finals first"),
        "{text}"
    );
    order(70).unwrap();
}
