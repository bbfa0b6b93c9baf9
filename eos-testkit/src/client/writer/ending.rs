//! The end of a transaction: commit or abort.

use eos_client::ClientError;
use eos_protocol::CallSite;
use kafka_protocol::messages::ResponseKind;
use kafka_wire::requests;

use super::Writer;
use super::phase::Phase;
use crate::client::call::Call;
use crate::client::errors::{Sense, sense};
use crate::client::fabric::Wire;
use crate::client::network::Line;

impl Writer {
    /// Ends the transaction, and waits for the response. An abort drops unsent records, and waits for those
    /// under way. A transaction that the coordinator does not know ends without a request.
    pub(in crate::client) fn end(
        &mut self,
        commits: bool,
        wire: &mut Wire<'_>,
    ) -> Option<Result<(), ClientError>> {
        let call = if commits {
            CallSite::Commit
        } else {
            CallSite::Abort
        };
        if self.fatal || (commits && self.failed.is_some()) {
            return self.failure(call).map(Err);
        }
        if self.end.as_ref().is_none_or(|(_, is)| *is != commits) {
            if !commits {
                self.queues.clear();
                // Requests under way finish first.
                let _abandoned = self.go_on_with_offsets(wire);
                if self.offsets.is_some() || !self.is_flushed() {
                    return None;
                }
            }
            let Some(identity) = self.identity else {
                return Some(Ok(()));
            };
            if self.added.is_empty() && !self.with_offsets && self.failed.is_none() {
                self.phase = Phase::Ready;
                return Some(Ok(()));
            }
            self.phase = if commits {
                Phase::Committing
            } else {
                Phase::Aborting
            };
            let request = requests::end_txn(self.id(), identity, commits);
            self.end = Some((Call::new(Line::Coordinator, request), commits));
        }
        let (mut end, _) = self.end.take()?;
        let Some(ResponseKind::EndTxn(answer)) = end.poll(wire) else {
            self.end = Some((end, commits));
            return None;
        };
        match sense(answer.error_code) {
            Sense::Well => {
                self.over(&end);
                self.failed = None;
                self.phase = Phase::Ready;
                Some(Ok(()))
            }
            Sense::Again => {
                end.again(wire);
                self.end = Some((end, commits));
                None
            }
            _ => {
                self.over(&end);
                self.phase = Phase::Open;
                self.fail(call, answer.error_code);
                self.failure(call).map(Err)
            }
        }
    }
}
