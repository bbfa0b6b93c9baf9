//! `process_values` keeps the key.
use eos_core::{App, Topic};

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    app.source(&texts)
        .process_values(|ctx, text| ctx.forward(text.value.clone(), text.value))
        .to(&texts);
}
