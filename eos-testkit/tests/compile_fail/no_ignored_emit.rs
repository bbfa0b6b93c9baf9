//! If the result is ignored, an output that can't be encoded is lost without an error.
#![deny(unused_must_use)]

use eos_core::{App, Topic};

fn main() {
    let mut app = App::new("misuse");
    let topic = Topic::<String, String>::plain("t");
    let out = app.output(&topic);
    app.source(&topic).for_each(move |ctx, record| {
        ctx.emit(&out, record.key, record.value);
    });
}
