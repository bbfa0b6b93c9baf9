//! [`Producer`] on the model.

use std::task::Poll;
use std::time::Duration;

use eos_core::client::{ClientError, OffsetToCommit, Outgoing, Producer, ProducerSpec, Result};
use eos_protocol::{CallSite, code};

use super::cluster::Cluster;
use super::network::ClientId;
use super::source::ModelMember;
use super::world::Wire;
use super::writer::{Queued, Writer};

/// A transactional producer on the model; without a transactional id, an idempotent one.
#[derive(Debug)]
pub struct ModelProducer {
    cluster: Cluster,
    id: ClientId,
    client_id: String,
    writer: Writer,
    /// A call that does not end at once has begun: its effect is announced once.
    announced: Option<CallSite>,
}

impl ModelProducer {
    pub(super) fn new(cluster: Cluster, spec: &ProducerSpec) -> ModelProducer {
        ModelProducer {
            id: cluster.with(|world| world.new_client()),
            cluster,
            client_id: spec.client_id.clone(),
            writer: Writer::new(spec),
            announced: None,
        }
    }

    /// Has the writer act, and then do what its threads would.
    fn act<T>(&mut self, act: impl FnOnce(&mut Writer, &mut Wire<'_>) -> T) -> T {
        let (id, client_id, writer) = (self.id, &self.client_id, &mut self.writer);
        self.cluster.with(|world| {
            world.on_wire(id, client_id, |wire| {
                writer.tick(wire);
                let answer = act(writer, wire);
                writer.tick(wire);
                answer
            })
        })
    }

    /// A call that may have to be made again before it is done.
    fn call(
        &mut self,
        call: CallSite,
        act: impl FnOnce(&mut Writer, &mut Wire<'_>) -> Option<Result<()>>,
    ) -> Poll<Result<()>> {
        if self.announced != Some(call) {
            self.cluster.before(call, &self.client_id);
            self.announced = Some(call);
        }
        let Some(answer) = self.act(act) else {
            return Poll::Pending;
        };
        self.announced = None;
        self.cluster.after(call, &self.client_id);
        Poll::Ready(answer)
    }
}

impl Drop for ModelProducer {
    /// What is on its way arrives; nobody hears the answers.
    fn drop(&mut self) {
        self.cluster.with(|world| world.gone(self.id));
    }
}

impl Producer for ModelProducer {
    type Member = ModelMember;

    fn init(&mut self, _: Duration) -> Poll<Result<()>> {
        if !self.writer.is_transactional() {
            return Poll::Ready(Ok(()));
        }
        self.call(CallSite::Init, Writer::init)
    }

    fn begin(&mut self) -> Result<()> {
        self.cluster.before(CallSite::Begin, &self.client_id);
        if self.writer.is_fatal()
            && let Some(failure) = self.writer.failure(CallSite::Begin)
        {
            return Err(failure);
        }
        self.writer.begin();
        self.cluster.after(CallSite::Begin, &self.client_id);
        Ok(())
    }

    fn send(&mut self, record: &Outgoing<'_>) -> Poll<Result<()>> {
        let call = CallSite::Send;
        self.cluster.before(call, &self.client_id);
        if !self.writer.has_topic(record.topic) {
            let text = format!("this producer has no topic number {}", record.topic);
            return Poll::Ready(Err(ClientError::new(call, code::LOCAL_UNKNOWN_TOPIC, text)));
        }
        if let Some(failure) = self.writer.failure(call) {
            return Poll::Ready(Err(failure));
        }
        let now = self.cluster.now();
        let headers = record.headers.iter().map(|header| {
            let value = header.value.as_deref().map(<[u8]>::to_vec);
            (header.name.to_string(), value)
        });
        let queued = Queued {
            timestamp: record.timestamp.map_or(now, |time| time.0),
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: headers.collect(),
        };
        let place = (record.topic, record.partition.get());
        self.act(|writer, _| writer.queue(place, queued));
        self.cluster.after(call, &self.client_id);
        Poll::Ready(Ok(()))
    }

    fn send_offsets(
        &mut self,
        offsets: &[OffsetToCommit],
        member: &ModelMember,
        _: Duration,
    ) -> Poll<Result<()>> {
        if !self.writer.is_transactional() {
            return Poll::Ready(Ok(()));
        }
        self.call(CallSite::SendOffsets, |writer, wire| {
            writer.send_offsets(offsets, member, wire)
        })
    }

    fn flush(&mut self, _: Duration) -> Poll<Result<()>> {
        self.call(CallSite::Flush, |writer, _| {
            match writer.failure(CallSite::Flush) {
                Some(failure) => Some(Err(failure)),
                None => writer.is_flushed().then_some(Ok(())),
            }
        })
    }

    fn commit(&mut self, _: Duration) -> Poll<Result<()>> {
        if !self.writer.is_transactional() {
            return Poll::Ready(Ok(()));
        }
        self.call(CallSite::Commit, |writer, wire| writer.end(true, wire))
    }

    fn abort(&mut self, _: Duration) -> Poll<Result<()>> {
        if !self.writer.is_transactional() {
            return Poll::Ready(Ok(()));
        }
        self.call(CallSite::Abort, |writer, wire| writer.end(false, wire))
    }

    fn unanswered(&self) -> bool {
        self.writer.unanswered()
    }
}
