//! `for_each` ends the stream.
use eos_core::{App, Topic};

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    app.source(&texts)
        .for_each(|ctx, text| ctx.forward(text.key, text.value));
}
