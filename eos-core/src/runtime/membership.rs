//! The group protocol of a worker.

use eos_protocol::{InstanceId, Stage, WorkerId, subscription};

use crate::client::GroupProtocol;
use crate::config::{Protocol, Settings};

/// Returns a static member's name: see [`subscription`].
fn instance_id(
    settings: &Settings,
    instance: &InstanceId,
    id: WorkerId,
    subscription: u32,
) -> String {
    let identity = id.identity(&settings.app, instance);
    format!("{identity}-{subscription:08x}")
}

/// Returns the group protocol of a worker, with its static member's name.
pub(in crate::runtime) fn protocol(
    settings: &Settings,
    instance: &InstanceId,
    id: WorkerId,
    stages: &[Stage],
) -> GroupProtocol {
    match settings.protocol {
        Protocol::Consumer => GroupProtocol::Consumer,
        Protocol::Classic => GroupProtocol::Classic {
            instance_id: settings
                .static_member()
                .then(|| instance_id(settings, instance, id, subscription(stages))),
            session_timeout: settings.session_timeout(),
            heartbeat_interval: settings.heartbeat(),
        },
    }
}
