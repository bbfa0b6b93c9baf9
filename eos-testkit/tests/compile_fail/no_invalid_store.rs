//! `app.store` needs a definition of a store, and an ordered store needs keys whose bytes sort like the keys.

use eos_core::App;
use eos_core::state::OrderedStore;

fn main() {
    let mut app = App::new("wrong");
    app.store(&"counts");
    let _ = OrderedStore::<f64, u64>::plain("prices");
}
