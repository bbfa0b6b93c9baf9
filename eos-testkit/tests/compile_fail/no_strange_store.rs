//! A store is declared by its definition, and an ordered store needs keys whose bytes have their order.

use eos_core::App;
use eos_core::state::OrderedStore;

fn main() {
    let mut app = App::new("wrong");
    app.store(&"counts");
    let _ = OrderedStore::<f64, u64>::plain("prices");
}
