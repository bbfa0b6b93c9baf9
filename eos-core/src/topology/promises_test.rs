//! Warnings and promises of windows.

use std::time::Duration;

use crate::codec::{Plain, SessionWindowed, TimeWindowed};
use crate::state::{SessionStore, WindowStore};
use crate::windows::{Hopping, Session, Windowed};
use crate::{App, Topic};

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
