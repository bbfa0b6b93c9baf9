//! The types of a `process` are those that it forwards.
use eos_core::{App, Topic};

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    app.source(&texts).process(|_, _| {}).ignore();
}
