//! Both sides of a join need each key in one task.
use std::time::Duration;

use eos_core::state::JoinStore;
use eos_core::windows::Within;
use eos_core::{App, Topic};

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    let (left, right) = (app.source(&texts), app.source(&texts));
    let within = Within::of(Duration::from_secs(1));
    let store = JoinStore::<String, String, String>::plain("joined");
    left.clone()
        .key_by(|text| text.clone())
        .join_within(right.clone(), within, &store, |l, r| format!("{l}{r}"))
        .to(&texts);
    left.join_within(right.key_by(|text| text.clone()), within, &store, |l, r| format!("{l}{r}"))
        .to(&texts);
}
