//! Warnings and promises of operators.

use std::time::Duration;

use crate::codec::{Plain, SessionWindowed, TimeWindowed};
use crate::identity::{HighWatermarks, SeenIds, Sequence, Versions};
use crate::reorder::{OnGap, Reorder};
use crate::state::{ReorderStore, SessionStore, WindowStore};
use crate::timers::Clock;
use crate::windows::{Hopping, Session, Windowed};
use crate::{App, Guarantee, Stream, Topic};

const SECOND: Duration = Duration::from_secs(1);

fn hopping(windows: u32, is_final: bool) -> App {
    let mut app = App::new("a");
    let counts = app
        .source(&Topic::<String, String>::plain("in"))
        .close_when_idle(SECOND * 30)
        .group_by_key()
        .windowed_by(Hopping::of(SECOND * windows).every(SECOND))
        .count(&WindowStore::plain("counts"));
    let out = Topic::<Windowed<String>, u64, _, _>::with("out", TimeWindowed::of(SECOND), Plain);
    match is_final {
        true => counts.emit_on_close().to(&out),
        false => counts.to(&out),
    }
    app
}

#[test]
fn a_record_in_more_than_64_windows_is_a_warning() {
    let warnings = |windows| hopping(windows, false).describe().unwrap().warnings();
    assert!(warnings(64).is_empty());
    let warnings = warnings(65);
    assert_eq!(warnings.len(), 1);
    for part in ["store counts", "65 windows", "every"] {
        assert!(warnings[0].contains(part), "{warnings:?}");
    }
}

#[test]
fn final_results_have_their_promise() {
    let described = hopping(2, true)
        .describe()
        .unwrap()
        .guarantees()
        .to_string();
    let promise = "each window once, when stream time passes its end and grace, or the clock 30s behind, while no records arrive";
    assert_eq!(described.matches(promise).count(), 1, "{described}");
    // At least once, the promise is weaker.
    let mut app = hopping(2, true);
    app.guarantee(Guarantee::AtLeastOnce);
    let weaker = app.describe().unwrap().guarantees().to_string();
    let promise = format!("{promise}; a crash may repeat results");
    assert_eq!(weaker.matches(&promise).count(), 1, "{weaker}");
    assert!(!described.contains(&promise), "{described}");
    let described = hopping(2, false)
        .describe()
        .unwrap()
        .guarantees()
        .to_string();
    assert!(!described.contains("each window once"), "{described}");
    let mut app = App::new("a");
    app.source(&Topic::<String, String>::plain("in"))
        .group_by_key()
        .windowed_by(Session::gap(SECOND))
        .count(&SessionStore::plain("counts"))
        .emit_on_close()
        .to(&Topic::with("out", SessionWindowed::of(Plain), Plain));
    let described = app.describe().unwrap().guarantees().to_string();
    let promise = "each session once, when stream time passes its end and grace\n";
    assert_eq!(described.matches(promise).count(), 1, "{described}");
}

/// Each operator has a name in `describe()`, and a promise on the edge to the next node.
#[test]
fn operators_of_identity_and_order_have_their_promises() {
    type Texts = Stream<String, String>;
    type Case<'a> = (&'a str, &'a str, &'a dyn Fn(Texts) -> Texts);
    let by_number = |texts: Texts| {
        let settings = Reorder::max_gap(5).max_wait(SECOND, Clock::Stream);
        let settings = settings.on_gap(OnGap::PassOn);
        texts
            .reorder_by(|_| 0_u64, settings, &ReorderStore::plain("waiting"))
            .ordered()
    };
    let of_producer = |_: &String| Sequence {
        producer: Some(String::new()),
        epoch: 0,
        number: 0,
    };
    let operators: [Case<'_>; 5] = [
        (
            "-DEDUP-",
            "one record per id and scope is new within the window of seen",
            &|texts| {
                let ids = SeenIds::fixed("seen", SECOND * 60);
                texts.dedup(&ids).by_key()
            },
        ),
        (
            "-DEDUP-",
            "at most one record per number of a producer's epoch is new, in ascending order",
            &|texts| {
                texts
                    .dedup_by_sequence(&HighWatermarks::new("marks"), of_producer)
                    .accepted()
            },
        ),
        (
            "-NEWEST-",
            "only a version above all earlier ones of its key is accepted",
            &|texts| {
                texts
                    .newest(&Versions::new("versions"), |_| 0_u64)
                    .accepted()
            },
        ),
        (
            "-REORDER-",
            "ordered by timestamp, except for records that are more than 5s late",
            &|texts| {
                texts
                    .reorder_by_time(SECOND * 5, &ReorderStore::plain("waiting"))
                    .ordered()
            },
        ),
        (
            "-REORDER-",
            "ordered by number within each key, except for late records",
            &by_number,
        ),
    ];
    for (name, promise, operator) in operators {
        let mut app = App::new("a");
        let texts = app.source(&Topic::<String, String>::plain("in"));
        operator(texts).to(&Topic::plain("out"));
        let description = app.describe().unwrap();
        let topology = description.to_string();
        assert!(topology.contains(name), "{name} is not in {topology}");
        let guarantees = description.guarantees().to_string();
        assert_eq!(guarantees.matches(promise).count(), 1, "{guarantees}");
    }
}

/// Late records take an edge of their own, without the promise.
#[test]
fn an_edge_of_late_records_has_no_promise() {
    let mut app = App::new("a");
    app.source(&Topic::<String, String>::plain("in"))
        .reorder_by_time(SECOND * 5, &ReorderStore::plain("waiting"))
        .late_to(&Topic::plain("late"))
        .ordered()
        .to(&Topic::plain("out"));
    let description = app.describe().unwrap();
    let guarantees = description.guarantees().to_string();
    assert_eq!(
        guarantees.matches("ordered by timestamp").count(),
        1,
        "{guarantees}"
    );
    assert_eq!(
        guarantees.matches("KSTREAM-REORDER").count(),
        4,
        "{guarantees}"
    );
}
