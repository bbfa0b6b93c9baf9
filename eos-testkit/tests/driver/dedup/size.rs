//! The rows of a store over time, and their description by `describe`.

use std::time::Duration;

use eos_core::identity::SeenIds;
use eos_core::state::WindowStore;
use eos_core::windows::Tumbling;
use eos_core::{App, ErrorPolicy, Timestamp, Topic};
use eos_testkit::{Input, TestDriver};

use super::{BEGIN, MINUTE, app_with, input, minutes, output};

const DAY: u64 = 24 * 60;

/// R46, R59, R60: at a constant rate, a store has a constant number of rows. These are the rows of the window, and at
/// most those of one bucket and of the lateness. Each id arrives twice.
#[test]
fn a_month_keeps_one_and_a_half_windows_and_the_lateness() {
    struct Run {
        seen: SeenIds<String>,
        days: u64,
        /// Minutes between two ids.
        every: u64,
        /// Minutes.
        window: u64,
        /// The longest time that a row is kept, in minutes.
        kept: u64,
    }
    let check = |run: Run| {
        let seen = run.seen.trust_times();
        let app = app_with(&seen, ErrorPolicy::fail(), |dedup| dedup.by(String::clone));
        let mut driver = TestDriver::new(app);
        let mut counts = Vec::new();
        let of_quarter = DAY / 4 / run.every;
        for quarter in 0..run.days * 4 {
            let records = (0..of_quarter).flat_map(|n| {
                let n = quarter * of_quarter + n;
                let time = BEGIN + (n * run.every).cast_signed() * MINUTE;
                let record = || Input::<String, String>::new("k", n.to_string());
                [0, MINUTE / 2].map(|later| record().at(Timestamp(time + later)))
            });
            driver.pipe_all(&input(), records);
            let rows = driver.store(&seen).len() as u64;
            let of_window = ((quarter + 1) * of_quarter).min(run.window / run.every);
            assert!(rows >= of_window, "{quarter}: {rows} of {of_window}");
            // One row has the terms of the store.
            counts.push(driver.stored_rows() as u64 - 1);
        }
        assert_eq!(driver.count(&output()) as u64, run.days * DAY / run.every);
        let most = run.kept / run.every;
        assert!(
            counts.iter().all(|rows| *rows <= most),
            "{most}: {counts:?}"
        );
        // The number of rows reaches its maximum in the first half and stays there.
        let half = counts.len() / 2;
        let [early, late] = [&counts[..half], &counts[half..]].map(|it| it.iter().max());
        assert_eq!(early, late, "{counts:?}");
        assert!(*late.unwrap() > most * 3 / 5, "{most}: {counts:?}");
        // The changelog is cut as well.
        driver.advance_wall_clock(Duration::from_secs(60));
        let ends = driver
            .cluster()
            .broker(|it| it.ends_of("a-in-windowed-changelog", 0));
        let (first, end) = ends.unwrap();
        // It is cut in steps of a sixteenth of the retention.
        let kept = run.kept as f64 * 17.0 / 16.0 / (run.days * DAY) as f64;
        let part = (end - first) as f64 / end as f64;
        assert!(
            part < kept + 0.05,
            "the changelog has {first}..{end}, which is more than {kept:.3}"
        );
    };
    check(Run {
        seen: SeenIds::fixed("seen", minutes(DAY)),
        days: 31,
        every: 5,
        window: DAY,
        // The default lateness is an hour.
        kept: DAY * 3 / 2 + 60,
    });
    check(Run {
        seen: SeenIds::sliding("seen", minutes(DAY)).lateness(minutes(DAY / 2)),
        days: 31,
        every: 5,
        window: DAY,
        kept: 2 * DAY,
    });
    check(Run {
        seen: SeenIds::fixed("seen", minutes(30 * DAY)),
        days: 124,
        every: 60,
        window: 30 * DAY,
        kept: 45 * DAY + 60,
    });
}

/// R39: an endless store grows by a row for each id, and by none for a repetition. `EOS_FULL=1` has a million ids.
#[test]
fn an_endless_store_has_a_row_for_each_id() {
    let seen = SeenIds::for_ever("seen");
    let app = app_with(&seen, ErrorPolicy::fail(), |dedup| dedup.by(String::clone));
    let mut driver = TestDriver::new(app);
    let ids = match std::env::var_os("EOS_FULL") {
        Some(_) => 1_000_000,
        None => 5_000,
    };
    for _ in 0..2 {
        for part in (0..ids).step_by(5_000) {
            let records =
                (part..part + 5_000).map(|n| Input::<String, String>::new("k", n.to_string()));
            driver.pipe_all(&input(), records);
        }
        assert_eq!(driver.store(&seen).len(), ids);
    }
    assert_eq!(driver.count(&output()), ids);
    let sizing = seen.sizing(1.0);
    eprintln!("{ids} ids: {sizing:?}");
}

/// An expensive combination: a store with days of ids in one stage with windows of minutes.
#[test]
fn a_long_store_beside_a_short_one_is_a_warning() {
    let described = |window: Duration, in_one_stage: bool| {
        let mut app = App::new("a");
        let new = app
            .source(&input())
            .dedup(&SeenIds::fixed("seen", window))
            .by(String::clone);
        let topic = Topic::<String, String>::plain("between");
        let new = match in_one_stage {
            true => new,
            false => {
                new.to(&topic);
                app.source(&topic)
            }
        };
        new.group_by_key()
            .windowed_by(Tumbling::of(minutes(60)))
            .count(&WindowStore::plain("views"))
            .to_stream()
            .ignore();
        app.describe().unwrap()
    };
    let day = described(minutes(DAY), true);
    let [warning] = &day.warnings()[..] else {
        panic!("{:?}", day.warnings());
    };
    assert!(
        warning.contains(
            "the store views keeps windows for 3600s, but its changelog a-in-windowed-changelog keeps them for 133200s, \
             because the store seen"
        ),
        "{warning}"
    );
    assert_eq!(
        day.stores().to_string(),
        "seen: kept for 133200s of stream time; up to 5 reads for a new id, about 35 bytes on disk for an id of 16 bytes \
         and a key of 8; changelog a-in-windowed-changelog\n\
         views: kept for 3600s of stream time; changelog a-in-windowed-changelog, which keeps rows for 133200s because of \
         seen\n"
    );
    assert!(described(minutes(DAY), false).warnings().is_empty());
    assert!(described(minutes(60), true).warnings().is_empty());
}
