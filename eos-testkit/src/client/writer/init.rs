//! The initialization of a producer's identity.

use eos_client::ClientError;
use eos_protocol::CallSite;
use kafka_protocol::messages::ResponseKind;
use kafka_wire::batch::ProducerIdentity;
use kafka_wire::requests;

use super::Writer;
use super::phase::Phase;
use crate::client::call::Call;
use crate::client::errors::{Sense, sense};
use crate::client::fabric::Wire;
use crate::client::network::Line;

impl Writer {
    /// Sends InitProducerId until it succeeds.
    pub(in crate::client) fn init(
        &mut self,
        wire: &mut Wire<'_>,
    ) -> Option<Result<(), ClientError>> {
        let mut call = self.init.take().unwrap_or_else(|| {
            let id = self.transactional_id.as_deref();
            let request = requests::init_producer_id(id, self.timeout_ms, requests::NO_PRODUCER);
            Call::new(Line::Coordinator, request)
        });
        let Some(ResponseKind::InitProducerId(answer)) = call.poll(wire) else {
            self.init = Some(call);
            return None;
        };
        match sense(answer.error_code) {
            Sense::Well => {
                self.over(&call);
                self.phase = Phase::Ready;
                self.identity = Some(ProducerIdentity {
                    id: answer.producer_id.0,
                    epoch: answer.producer_epoch,
                });
                Some(Ok(()))
            }
            Sense::Again => {
                call.again(wire);
                self.init = Some(call);
                None
            }
            _ => {
                self.over(&call);
                self.fail(CallSite::Init, answer.error_code);
                self.failure(CallSite::Init).map(Err)
            }
        }
    }

    /// An idempotent producer requests its id before its first send.
    pub(super) fn idempotent(&mut self, wire: &mut Wire<'_>) -> Option<ProducerIdentity> {
        if !self.is_transactional() && self.queues.values().any(|queue| !queue.is_empty()) {
            let _failed = self.init(wire);
        }
        self.identity
    }
}
