//! The kill test: the processes of an app are killed repeatedly under load, and the judge checks the output. In a
//! churn, processes join and leave all the time instead.
//!
//! ```text
//! generator ──► cities ──► processes of the app ──► outputs ──► judge
//!                             ▲  kill, roll, join, leave        ▲
//!     plan (seeded) ──► scenario ◄── watch: how far is the committed output?
//! ```
//!
//! A test proves nothing if its faults did not happen, or happened while no records flowed. So each fault is recorded
//! with its position in the stream, and a run with too few faults fails.

mod load;
mod outcome;
mod plan;
mod run;
mod scenario;
mod watch;

pub use load::Load;
pub use outcome::{Fault, Judged, Kill, Outcome, Rebalances};
pub use plan::{Parting, Random, Step, Strike};
pub use run::run;
pub use scenario::{Course, Members, Programs, Promise, Scenario};
pub use watch::{Sample, Watch};
