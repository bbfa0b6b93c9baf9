//! Keys need an agreed encoding: a float has none.
use eos_core::Topic;

fn main() {
    let _topic = Topic::<f64, String>::plain("texts");
}
