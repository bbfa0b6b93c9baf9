//! Each worker is a thread, so values that closures share must be thread-safe.
use std::cell::Cell;

use eos_core::{App, Topic};

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    let seen = Cell::new(0);
    app.source(&texts)
        .peek(move |_| seen.set(seen.get() + 1))
        .to(&texts);
}
