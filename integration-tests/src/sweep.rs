//! A fault at one step of one process: the app crashes, freezes or meets an error there, others or
//! itself go on, and the judge looks at what is left.
//!
//! Many cases run beside each other on one cluster, each with its own topics, group and processes.

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
