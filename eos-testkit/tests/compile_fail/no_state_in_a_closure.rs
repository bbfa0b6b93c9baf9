//! An aborted transaction would leave the count too high. State belongs into the stores of a `Processor`.
use eos_core::{App, Topic};

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    let mut seen = 0;
    app.source(&texts)
        .filter(move |_| {
            seen += 1;
            seen % 2 == 0
        })
        .to(&texts);
}
