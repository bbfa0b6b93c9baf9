//! Tests of the proxy, with a broker that accepts every request, and a client that is a socket.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kafka_wire::frame;
use kafka_wire::protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_wire::protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, HeartbeatRequest, ProducerId,
    TransactionalId,
};
use kafka_wire::protocol::protocol::{Request, StrBytes};

use super::dispatch::lock;
use super::{Act, ApiKey, Cut, Header, Hold, On, Proxy, Rule, answers};
use crate::wait::wait_until;

const PATIENCE: Duration = Duration::from_secs(30);
/// The time to wait for a response that must not arrive.
const SILENCE: Duration = Duration::from_millis(200);
/// The version of every request in these tests. librdkafka supports it.
const VERSION: i16 = 1;

/// A broker that responds to each request without error, and records its header.
struct Broker {
    address: String,
    heard: Arc<Mutex<Vec<Header>>>,
}

impl Broker {
    fn start() -> Result<Broker> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let heard = Arc::<Mutex<Vec<Header>>>::default();
        let noted = Arc::clone(&heard);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                thread::spawn(move || serve(stream, &noted));
            }
        });
        Ok(Broker { address, heard })
    }

    /// Returns the correlation ids of the received requests, in order.
    fn heard(&self) -> Vec<i32> {
        lock(&self.heard).iter().map(|h| h.correlation).collect()
    }
}

fn serve(mut stream: TcpStream, heard: &Mutex<Vec<Header>>) -> Option<()> {
    while let Some(request) = frame::read(&mut stream, frame::LARGEST).ok()? {
        let header = Header::parse(&request).ok()?;
        lock(heard).push(header.clone());
        let answer = answers::refusal(&header, &request, 0).ok()??;
        frame::write(&mut stream, &answer).ok()?;
    }
    Some(())
}

struct Client {
    stream: TcpStream,
    name: &'static str,
    sent: i32,
}

impl Client {
    fn connect(proxy: &Proxy, name: &'static str, first: i32) -> Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", proxy.ports()[0]))?;
        let sent = first - 1;
        Ok(Client { stream, name, sent })
    }

    fn send<R: Request>(&mut self, request: &R) -> Result<Header> {
        self.sent += 1;
        let frame = frame::encode_request(request, VERSION, self.sent, self.name)?;
        self.stream.write_all(&frame)?;
        Ok(Header::parse(&frame[4..])?)
    }

    /// Returns the correlation id and the error code of the next response, or `None` if the connection is closed.
    fn hear(&mut self, header: &Header) -> Result<Option<(i32, i16)>> {
        self.stream.set_read_timeout(Some(PATIENCE))?;
        let answer = match frame::read(&mut self.stream, frame::LARGEST) {
            Ok(answer) => answer,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => return Err(error.into()),
        };
        let Some(answer) = answer else {
            return Ok(None);
        };
        let code = answers::code(header, &answer).context("no code")?;
        Ok(Some((frame::correlation(&answer).context("short")?, code)))
    }

    fn ask<R: Request>(&mut self, request: &R) -> Result<Option<(i32, i16)>> {
        let header = self.send(request)?;
        self.hear(&header)
    }

    fn hears_nothing(&mut self) -> bool {
        let limit = self.stream.set_read_timeout(Some(SILENCE));
        limit.is_ok() && frame::read(&mut self.stream, frame::LARGEST).is_err()
    }
}

fn end() -> EndTxnRequest {
    EndTxnRequest::default()
        .with_transactional_id(TransactionalId(StrBytes::from_static_str("t")))
        .with_producer_id(ProducerId(7))
        .with_committed(true)
}

fn partitions() -> AddPartitionsToTxnRequest {
    let topic = AddPartitionsToTxnTopic::default().with_partitions(vec![0, 1]);
    AddPartitionsToTxnRequest::default().with_v3_and_below_topics(vec![topic])
}

fn proxy() -> Result<(Proxy, Broker)> {
    let (proxy, broker) = (Proxy::start(1)?, Broker::start()?);
    proxy.forward_to(std::slice::from_ref(&broker.address))?;
    Ok((proxy, broker))
}

#[test]
fn without_a_rule_everything_passes_both_ways() -> Result<()> {
    let (proxy, broker) = proxy()?;
    let mut client = Client::connect(&proxy, "app-producer", 1)?;
    assert_eq!(client.ask(&end())?, Some((1, 0)));
    assert_eq!(client.ask(&partitions())?, Some((2, 0)));
    assert_eq!(broker.heard(), [1, 2]);
    assert_eq!(proxy.requests(ApiKey::EndTxn, "app"), 1);
    assert_eq!(proxy.requests(ApiKey::EndTxn, "other"), 0);
    assert!(proxy.log().is_empty());
    Ok(())
}

#[test]
fn the_second_of_a_client_is_kept_and_delivered_on_command() -> Result<()> {
    let (proxy, broker) = proxy()?;
    let rule = Rule::on(ApiKey::EndTxn).of("app").nth(2);
    let rule = proxy.add(rule.then(Act::Hold(Hold::cut())));
    let mut other = Client::connect(&proxy, "other", 100)?;
    let mut client = Client::connect(&proxy, "app-producer", 1)?;
    for nth in 0..3 {
        assert_eq!(other.ask(&end())?, Some((100 + nth, 0)));
    }
    assert_eq!(client.ask(&end())?, Some((1, 0)));
    assert_eq!(client.ask(&end())?, None, "cut");
    assert_eq!((proxy.fired(rule), proxy.held(rule)), (1, 1));
    let mut again = Client::connect(&proxy, "app-producer", 1)?;
    assert_eq!(again.ask(&end())?, Some((1, 0)));
    assert_eq!(proxy.release(rule), 1);
    assert_eq!(broker.heard(), [100, 101, 102, 1, 1, 2]);
    let late = proxy.late(rule);
    assert_eq!((late.len(), late[0].code), (1, Some(0)));
    assert_eq!(late[0].header.correlation, 2);
    assert_eq!(proxy.held(rule), 0);
    let log: Vec<String> = proxy.log().iter().map(ToString::to_string).collect();
    assert_eq!(log.len(), 2, "{log:#?}");
    assert!(log[0].contains("EndTxn v1 #2 of app-producer: Held"));
    assert!(log[1].contains("Delivered(Some(0))"), "{log:#?}");
    Ok(())
}

#[test]
fn what_is_kept_until_answers_arrives_before_the_last_of_them() -> Result<()> {
    let (proxy, broker) = proxy()?;
    let hold = Hold::cut().until([ApiKey::EndTxn, ApiKey::AddPartitionsToTxn]);
    let rule = proxy.add(Rule::on(ApiKey::EndTxn).nth(1).then(Act::Hold(hold)));
    let mut first = Client::connect(&proxy, "app", 10)?;
    assert_eq!(first.ask(&end())?, None);
    let mut again = Client::connect(&proxy, "app", 20)?;
    assert_eq!(
        again.ask(&partitions())?,
        Some((20, 0)),
        "not yet: no EndTxn"
    );
    assert_eq!(again.ask(&end())?, Some((21, 0)));
    // A response to another client does not count.
    let mut other = Client::connect(&proxy, "other", 30)?;
    assert_eq!(other.ask(&partitions())?, Some((30, 0)));
    assert_eq!(broker.heard(), [20, 21, 30]);
    assert_eq!(again.ask(&partitions())?, Some((22, 0)));
    assert_eq!(broker.heard(), [20, 21, 30, 22, 10], "before the answer");
    assert_eq!(proxy.late(rule).len(), 1);
    Ok(())
}

#[test]
fn what_is_kept_for_a_time_arrives_after_it_on_the_old_connection() -> Result<()> {
    // On a stalled machine, the time may be over before another request overtakes. Then a longer time is tried.
    for time in [SILENCE, SILENCE * 8, SILENCE * 40] {
        let (proxy, broker) = proxy()?;
        let hold = Hold::uncut().for_time(time).on(On::Same);
        let rule = proxy.add(Rule::on(ApiKey::EndTxn).nth(1).then(Act::Hold(hold)));
        let mut client = Client::connect(&proxy, "app", 1)?;
        let held = client.send(&end())?;
        let next = client.send(&partitions())?;
        wait_until(PATIENCE, "the broker heard both", || {
            Ok(broker.heard().len() == 2)
        })?;
        let overtaken = broker.heard() == [2, 1];
        if overtaken {
            assert_eq!(client.hear(&next)?, Some((2, 0)));
        }
        assert_eq!(client.hear(&held)?, Some((1, 0)), "the connection lives");
        assert!(proxy.late(rule)[0].kept >= time);
        if overtaken {
            return Ok(());
        }
    }
    bail!("it is never overtaken")
}

#[test]
fn the_brokers_side_outlives_a_cut_for_what_is_kept() -> Result<()> {
    let (proxy, broker) = proxy()?;
    let hold = Act::Hold(Hold::cut().on(On::Same));
    let rule = proxy.add(Rule::on(ApiKey::EndTxn).nth(1).then(hold));
    let mut client = Client::connect(&proxy, "app", 1)?;
    assert_eq!(client.ask(&end())?, None);
    assert_eq!(proxy.release(rule), 1);
    wait_until(PATIENCE, "it is answered", || {
        Ok(proxy.late(rule).len() == 1)
    })?;
    assert_eq!(proxy.late(rule)[0].code, Some(0));
    assert_eq!(broker.heard(), [1]);
    Ok(())
}

#[test]
fn requests_are_dropped_doubled_and_slowed_down() -> Result<()> {
    let (proxy, broker) = proxy()?;
    proxy.add(Rule::on(ApiKey::EndTxn).nth(1).then(Act::Drop));
    proxy.add(Rule::on(ApiKey::EndTxn).nth(1).then(Act::Duplicate));
    let slow = Act::Delay(SILENCE);
    proxy.add(Rule::on(ApiKey::EndTxn).nth(1).then(slow));
    let rate = Act::Throttle(100);
    proxy.add(Rule::on(ApiKey::AddPartitionsToTxn).then(rate));
    let mut client = Client::connect(&proxy, "app", 1)?;
    client.send(&end())?;
    assert!(client.hears_nothing(), "dropped");
    assert_eq!(client.ask(&end())?, Some((2, 0)));
    assert!(client.hears_nothing(), "one answer to both");
    let start = Instant::now();
    assert_eq!(client.ask(&end())?, Some((3, 0)));
    assert!(start.elapsed() >= SILENCE, "delayed");
    let start = Instant::now();
    assert_eq!(client.ask(&partitions())?, Some((4, 0)));
    assert!(start.elapsed() >= SILENCE, "a quarter of a second's bytes");
    assert_eq!(broker.heard(), [2, 2, 3, 4]);
    Ok(())
}

#[test]
fn connections_are_cut_before_and_after() -> Result<()> {
    let (proxy, broker) = proxy()?;
    let on = || Rule::on(ApiKey::EndTxn).nth(1);
    proxy.add(on().then(Act::Cut(Cut::Before)));
    proxy.add(on().then(Act::Cut(Cut::After)));
    let lost = proxy.add(on().then(Act::LoseAnswer { cut: true }));
    let withheld = proxy.add(on().then(Act::LoseAnswer { cut: false }));
    for nth in 1..=3 {
        let mut client = Client::connect(&proxy, "app", nth)?;
        assert_eq!(client.ask(&end())?, None, "{nth} is cut");
        let heard = usize::try_from(nth - 1)?;
        wait_until(PATIENCE, "the broker heard it", || {
            Ok(broker.heard().len() == heard)
        })?;
    }
    let mut client = Client::connect(&proxy, "app", 4)?;
    client.send(&end())?;
    assert!(client.hears_nothing(), "withheld");
    assert_eq!(client.ask(&end())?, Some((5, 0)), "the connection lives");
    assert_eq!(broker.heard(), [2, 3, 4, 5]);
    assert_eq!((proxy.fired(lost), proxy.fired(withheld)), (1, 1));
    let deed = proxy.log_of(lost)[0].deed;
    assert_eq!(deed, super::Deed::AnswerLost(Some(0)));
    Ok(())
}

#[test]
fn the_proxy_answers_in_the_brokers_place() -> Result<()> {
    let (proxy, broker) = proxy()?;
    proxy.add(Rule::on_any([]).times(4).then(Act::Answer(22)));
    let mut client = Client::connect(&proxy, "app", 1)?;
    assert_eq!(client.ask(&end())?, Some((1, 22)));
    assert_eq!(client.ask(&partitions())?, Some((2, 22)));
    let offsets = AddOffsetsToTxnRequest::default();
    assert_eq!(client.ask(&offsets)?, Some((3, 22)));
    assert_eq!(client.ask(&HeartbeatRequest::default())?, Some((4, 22)));
    assert!(broker.heard().is_empty());
    assert_eq!(client.ask(&end())?, Some((5, 0)));
    Ok(())
}

#[test]
fn a_rule_begins_after_answers_and_ends_with_a_request() -> Result<()> {
    let (proxy, _broker) = proxy()?;
    let rule = Rule::on(ApiKey::EndTxn).of("app");
    let rule = rule.after([ApiKey::AddPartitionsToTxn]);
    let rule = rule.until(ApiKey::Heartbeat).then(Act::Answer(22));
    let rule = proxy.add(rule);
    let mut client = Client::connect(&proxy, "app", 1)?;
    let beat = HeartbeatRequest::default();
    assert_eq!(client.ask(&end())?, Some((1, 0)), "not yet");
    assert_eq!(client.ask(&beat)?, Some((2, 0)));
    assert_eq!(client.ask(&partitions())?, Some((3, 0)));
    assert_eq!(client.ask(&end())?, Some((4, 22)));
    assert_eq!(client.ask(&end())?, Some((5, 22)));
    assert_eq!(client.ask(&beat)?, Some((6, 0)));
    assert_eq!(client.ask(&end())?, Some((7, 0)), "no more");
    assert_eq!(proxy.fired(rule), 2);
    Ok(())
}

#[test]
fn chance_follows_from_the_seed() -> Result<()> {
    let draws = |seed| -> Result<Vec<i16>> {
        let (proxy, broker) = (Proxy::seeded(1, seed)?, Broker::start()?);
        proxy.forward_to(std::slice::from_ref(&broker.address))?;
        proxy.add(Rule::on(ApiKey::EndTxn).chance(0.5).then(Act::Answer(22)));
        let mut client = Client::connect(&proxy, "app", 1)?;
        let mut codes = Vec::new();
        for _ in 0..40 {
            codes.push(client.ask(&end())?.context("cut")?.1);
        }
        Ok(codes)
    };
    let codes = draws(1)?;
    let hits = codes.iter().filter(|code| **code == 22).count();
    ensure!((10..=30).contains(&hits), "{hits} of 40 at one half");
    assert_eq!(codes, draws(1)?);
    assert_ne!(codes, draws(2)?);
    Ok(())
}

#[test]
fn before_it_knows_the_brokers_a_proxy_closes_connections() -> Result<()> {
    let proxy = Proxy::start(1)?;
    let mut client = Client::connect(&proxy, "app", 1)?;
    // The write may fail already.
    let heard = client.ask(&end());
    assert!(matches!(heard, Ok(None) | Err(_)), "{heard:?}");
    let error = proxy.forward_to(&[]).unwrap_err().to_string();
    assert_eq!(error, "0 brokers for 1 ports");
    Ok(())
}
