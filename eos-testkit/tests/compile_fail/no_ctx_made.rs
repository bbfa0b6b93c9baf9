//! Only the runtime creates a context, and only a context can write.
use eos_core::{App, Ctx, Topic};

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let mut app = App::new("wrong");
    let out = app.output(&texts);
    out.send("key", "value");
    let ctx = Ctx { app: 0 };
    ctx.emit(&out, String::new(), String::new());
}
