//! A closure takes the value of its stream, and no `try_` method takes one without a result.
use eos_core::{App, Topic};

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    app.source(&texts).map(|n: u64| n + 1).to(&texts);
    app.source(&texts).try_map(|text| text).to(&texts);
}
