//! Keys need a defined encoding. A float has none.
use eos_core::{App, Topic};

fn main() {
    let mut app = App::new("wrong");
    app.source(&Topic::<f64, String>::plain("texts")).ignore();
}
