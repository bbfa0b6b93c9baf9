//! The twin of the misuses: everything that they do wrong, done right.
use eos_core::{App, Topic};

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let lengths = Topic::<String, u64>::plain("lengths");
    let mut app = App::new("right");
    let out = app.output(&lengths);
    app.source(&texts).map(|text| text.len() as u64).to(&lengths);
    app.source(&texts).process(move |ctx, text| ctx.emit(&out, text.key, 1));
    app.source(&texts).process(|_, _| {});
    app.source(&texts).process(|_, text| {
        let _n: u64 = text.value.parse()?;
        Ok(())
    });
}
