//! Faults at one step of one process. The app crashes, freezes or gets an error at this step. Then the same process or
//! a successor continues, and the judge checks the output.
//!
//! Many cases run at the same time on one cluster, each with its own topics, group and processes.

mod case;
mod member;
mod pool;
mod scene;
mod takeover;

pub use case::{Act, At, Case, IN_REVOKE_LONG, POINTS, Report, sweep, zombie};
pub use member::Member;
pub use pool::{Done, at_once, each};
pub use scene::{Scene, Settings};
pub use takeover::{Takeover, takeover};
