//! A value that is written to a JSON topic derives `Serialize`.
use eos_core::{App, Topic};

#[derive(serde::Deserialize)]
struct Order {
    id: u64,
}

fn main() {
    let mut app = App::new("wrong");
    app.source(&Topic::<String, u64>::plain("ids"))
        .map(|id| Order { id })
        .to(&Topic::json("orders"));
}
