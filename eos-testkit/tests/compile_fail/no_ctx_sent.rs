//! A context on another thread could write while its transaction commits.
use eos_core::{App, Topic};

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    let out = app.output(&texts);
    app.source(&texts).for_each(move |ctx, text| {
        std::thread::scope(|scope| {
            scope.spawn(|| ctx.emit(&out, text.key, text.value));
        });
    });
}
