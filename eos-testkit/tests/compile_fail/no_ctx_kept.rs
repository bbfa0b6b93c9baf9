//! A context that outlives its record could write outside its transaction.
use std::sync::Mutex;

use eos_core::{App, Ctx, Topic};

static KEPT: Mutex<Option<&'static Ctx<'static>>> = Mutex::new(None);

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    app.source(&texts).for_each(|ctx, _| {
        *KEPT.lock().unwrap() = Some(ctx);
    });
}
