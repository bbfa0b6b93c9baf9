//! The kill test: programs die again and again under load, and the judge says what came of it.
//!
//! ```text
//! generator ──► cities ──► processes of the app ──► outputs ──► judge
//!                             ▲  kill, roll, join, leave        ▲
//!     plan (seeded) ──► scenario ◄── watch: how far is the committed output?
//! ```
//!
//! A test whose faults did not happen, or happened while nothing flowed, proves nothing: each
//! fault is counted at its place in the stream, and a run with too few of them fails.

mod load;
mod outcome;
mod plan;
mod scenario;
mod watch;

pub use load::Load;
pub use outcome::{Fault, Judged, Kill, Outcome};
pub use plan::{Random, Step, Strike, plan};
pub use scenario::{Programs, Promise, Scenario, run};
pub use watch::{Sample, Watch};
