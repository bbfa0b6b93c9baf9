//! The next step consumes a stream. A second use needs a clone.
use eos_core::{App, Topic};

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    let lines = app.source(&texts);
    lines.filter(|line| line.is_empty()).to(&texts);
    lines.to(&texts);
}
