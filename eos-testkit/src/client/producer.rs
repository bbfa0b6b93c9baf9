//! [`Producer`] on the model.

use std::collections::BTreeMap;
use std::task::Poll;
use std::time::Duration;

use eos_client::{ClientError, OffsetToCommit, Outgoing, Producer, ProducerSpec, Result};
use eos_protocol::{CallSite, code};

use super::cluster::Cluster;
use super::member::ModelMember;
use super::network::ClientId;
use super::watcher::Edge;

use super::fabric::Wire;
use super::writer::{Queued, Writer};

/// A transactional producer on the model; without a transactional id, an idempotent one.
#[derive(Debug)]
pub struct ModelProducer {
    cluster: Cluster,
    id: ClientId,
    client_id: String,
    writer: Writer,
    /// Calls that have begun and not ended. Their effects are announced once.
    under_way: BTreeMap<CallSite, Held>,
}

/// A stalled call.
#[derive(Debug, Default)]
struct Held {
    until: i64,
    /// The result, if the call has been performed.
    answer: Option<Result<()>>,
}

impl ModelProducer {
    pub(super) fn new(cluster: Cluster, spec: &ProducerSpec) -> ModelProducer {
        ModelProducer {
            id: cluster.with(|world| world.new_client(&spec.client_id)),
            cluster,
            client_id: spec.client_id.clone(),
            writer: Writer::new(spec),
            under_way: BTreeMap::new(),
        }
    }

    /// Runs the writer, and then the work of its threads.
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

    /// A call that may have to be repeated before it is done.
    fn call(
        &mut self,
        call: CallSite,
        act: impl FnOnce(&mut Writer, &mut Wire<'_>) -> Option<Result<()>>,
    ) -> Poll<Result<()>> {
        if !self.under_way.contains_key(&call) {
            let stalls = self.cluster.stalls(call, &self.client_id, Edge::Before);
            self.hold(call, stalls, None);
        }
        let now = self.cluster.now();
        if let Some(held) = self.under_way.get(&call)
            && held.until > now
        {
            // The client's threads continue.
            self.act(|_, _| ());
            return Poll::Pending;
        }
        if let Some(answer) = self
            .under_way
            .get_mut(&call)
            .and_then(|it| it.answer.take())
        {
            self.under_way.remove(&call);
            return Poll::Ready(answer);
        }
        let Some(answer) = self.act(act) else {
            return Poll::Pending;
        };
        let stalls = self.cluster.stalls(call, &self.client_id, Edge::After);
        if stalls.is_some() {
            self.hold(call, stalls, Some(answer));
            return Poll::Pending;
        }
        self.under_way.remove(&call);
        Poll::Ready(answer)
    }

    fn hold(&mut self, call: CallSite, stalls: Option<i64>, answer: Option<Result<()>>) {
        let until = stalls.map_or(i64::MIN, |time| self.cluster.now() + time);
        self.under_way.insert(call, Held { until, answer });
    }

    /// Whether a call that changes the transaction's phase is valid, or the reason. A call that is done but not
    /// returned yet can be repeated.
    fn makes_sense(&self, call: CallSite) -> std::result::Result<(), &'static str> {
        match self.under_way.get(&call) {
            Some(held) if held.answer.is_some() => Ok(()),
            _ if call == CallSite::Init => self.writer.inits(),
            _ => self.writer.ends(call == CallSite::Commit),
        }
    }

    /// Refuses an invalid call, and records it.
    fn misused(&self, call: CallSite, why: &str) -> ClientError {
        let text = format!("{}: {call:?} {why}", self.client_id);
        self.cluster.with(|world| world.misuses.push(text));
        ClientError::new(call, code::LOCAL_STATE, why)
    }
}

impl Drop for ModelProducer {
    /// Requests that were sent still arrive, and their responses are dropped.
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
        if let Err(why) = self.makes_sense(CallSite::Init) {
            return Poll::Ready(Err(self.misused(CallSite::Init, why)));
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
        if let Err(why) = self.writer.begin() {
            return Err(self.misused(CallSite::Begin, why));
        }
        self.under_way.clear();
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
        if let Err(why) = self.writer.takes() {
            return Poll::Ready(Err(self.misused(call, why)));
        }
        let now = self.cluster.now();
        let headers = record.headers.iter().map(|header| {
            let value = header.value().map(<[u8]>::to_vec);
            (header.name().to_owned(), value)
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
        if let Err(why) = self.writer.takes() {
            return Poll::Ready(Err(self.misused(CallSite::SendOffsets, why)));
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
        if let Err(why) = self.makes_sense(CallSite::Commit) {
            return Poll::Ready(Err(self.misused(CallSite::Commit, why)));
        }
        self.call(CallSite::Commit, |writer, wire| writer.end(true, wire))
    }

    fn abort(&mut self, _: Duration) -> Poll<Result<()>> {
        if !self.writer.is_transactional() {
            return Poll::Ready(Ok(()));
        }
        if let Err(why) = self.makes_sense(CallSite::Abort) {
            return Poll::Ready(Err(self.misused(CallSite::Abort, why)));
        }
        self.call(CallSite::Abort, |writer, wire| writer.end(false, wire))
    }

    fn unanswered(&self) -> bool {
        self.writer.unanswered()
    }
}

#[cfg(test)]
mod tests {
    use eos_protocol::TransactionalId;

    use super::*;
    use eos_broker::broker::{Broker, BrokerOptions};

    fn producer(cluster: &Cluster) -> ModelProducer {
        let spec = ProducerSpec {
            client_id: "p".into(),
            transactional_id: Some(TransactionalId::new("t")),
            transaction_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(1),
            topics: Vec::new(),
            batch_limits: Vec::new(),
        };
        ModelProducer::new(cluster.clone(), &spec)
    }

    fn init(cluster: &Cluster, producer: &mut ModelProducer) -> Result<()> {
        loop {
            match producer.init(Duration::ZERO) {
                Poll::Ready(answer) => return answer,
                Poll::Pending => cluster.pass(cluster.now() + 1),
            }
        }
    }

    #[test]
    fn a_producer_is_initialised_once() {
        let cluster = Cluster::new(Broker::new(BrokerOptions::default()), 0);
        let mut producer = producer(&cluster);
        init(&cluster, &mut producer).unwrap();
        assert!(cluster.misuses().is_empty());
        init(&cluster, &mut producer).unwrap_err();
        producer.begin().unwrap();
        init(&cluster, &mut producer).unwrap_err();
        assert_eq!(
            cluster.misuses(),
            [
                "p: Init of a producer that is initialised",
                "p: Init while a transaction is open"
            ]
        );
    }
}
