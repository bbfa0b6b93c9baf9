//! One client's connection and its counterpart to the broker.
//!
//! One of its two threads reads requests and applies the rules. The other one reads responses and applies the decisions
//! on their requests. If the client's side is cut, the broker's side stays open while a response is pending, or while a
//! kept request is still to be sent on it.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_wire::frame::{self, Header};

use super::answers;
use super::book::Deed;
use super::dispatch::{Dispatch, lock};
use super::late::{Kept, Late, Origin};
use super::rule::{Act, Cut, Hold, On, RuleId, Until};

/// A connection through the proxy.
#[derive(Debug)]
pub(super) struct Link {
    dispatch: Arc<Dispatch>,
    number: u64,
    broker: usize,
    client: TcpStream,
    upstream: TcpStream,
    /// Held during a write to the client. A cut does not need it.
    to_client: Mutex<()>,
    to_broker: Mutex<()>,
    /// Requests without a response of the broker, in the order in which they were sent.
    pending: Mutex<VecDeque<Pending>>,
    /// Whether the client's side is cut. The broker's side is closed once no request is pending or kept.
    cut: AtomicBool,
    /// The number of kept requests that will be sent on this connection.
    promised: AtomicUsize,
}

#[derive(Debug)]
struct Pending {
    header: Header,
    fate: Fate,
}

/// The decision on a response.
#[derive(Debug)]
enum Fate {
    Pass,
    /// The response is not passed on: the second one to a duplicated request, or one after a cut.
    Discard,
    Lose {
        rule: RuleId,
        cut: bool,
    },
    Late {
        rule: RuleId,
        kept: Duration,
    },
}

impl Link {
    /// Connects the two sides and starts the threads.
    pub(super) fn start(
        dispatch: &Arc<Dispatch>,
        number: u64,
        broker: usize,
        client: TcpStream,
        upstream: TcpStream,
    ) -> io::Result<Arc<Link>> {
        for stream in [&client, &upstream] {
            stream.set_nodelay(true)?;
        }
        let (mut requests, mut answers) = (client.try_clone()?, upstream.try_clone()?);
        let link = Arc::new(Link {
            dispatch: Arc::clone(dispatch),
            number,
            broker,
            client,
            upstream,
            to_client: Mutex::default(),
            to_broker: Mutex::default(),
            pending: Mutex::default(),
            cut: AtomicBool::new(false),
            promised: AtomicUsize::new(0),
        });
        let (up, down) = (Arc::clone(&link), Arc::clone(&link));
        thread::spawn(move || {
            // A broken connection is handled like a closed one.
            let _ = up.take_requests(&mut requests);
            up.client_is_gone();
        });
        thread::spawn(move || {
            let _ = down.take_answers(&mut answers);
            down.close();
        });
        Ok(link)
    }

    fn take_requests(self: &Arc<Self>, from: &mut TcpStream) -> io::Result<()> {
        while let Some(request) = frame::read(from, frame::LARGEST)? {
            let header = Header::parse(&request)?;
            let verdict = lock(&self.dispatch.book).decide(&header);
            match verdict {
                None => self.pass(header, Fate::Pass, &request)?,
                Some((rule, act)) => self.act(rule, act, header, request)?,
            }
            if self.cut.load(Ordering::Acquire) {
                break;
            }
        }
        Ok(())
    }

    fn act(
        self: &Arc<Self>,
        rule: RuleId,
        act: Act,
        header: Header,
        request: Bytes,
    ) -> io::Result<()> {
        match act {
            Act::Hold(hold) => self.hold(rule, hold, header, request),
            Act::Drop => self.log(rule, &header, Deed::Dropped),
            Act::Duplicate => {
                self.log(rule, &header, Deed::Duplicated);
                self.pass(header.clone(), Fate::Pass, &request)?;
                self.pass(header, Fate::Discard, &request)?;
            }
            Act::Delay(time) => {
                self.log(rule, &header, Deed::Delayed(time));
                thread::sleep(time);
                self.pass(header, Fate::Pass, &request)?;
            }
            Act::Throttle(rate) => {
                let time = Duration::from_secs_f64(request.len() as f64 / f64::from(rate.max(1)));
                self.log(rule, &header, Deed::Delayed(time));
                thread::sleep(time);
                self.pass(header, Fate::Pass, &request)?;
            }
            Act::Cut(Cut::Before) => {
                self.log(rule, &header, Deed::CutBefore);
                self.cut_client();
            }
            Act::Cut(Cut::After) => {
                self.log(rule, &header, Deed::CutAfter);
                self.pass(header, Fate::Discard, &request)?;
                self.cut_client();
            }
            Act::LoseAnswer { cut } => {
                self.pass(header, Fate::Lose { rule, cut }, &request)?;
            }
            Act::Answer(code) => self.refuse(rule, code, header, &request)?,
        }
        Ok(())
    }

    fn hold(self: &Arc<Self>, rule: RuleId, hold: Hold, header: Header, frame: Bytes) {
        if hold.on == On::Same {
            self.promised.fetch_add(1, Ordering::AcqRel);
        }
        let (cut, until) = (hold.cut, hold.until.clone());
        let mut book = lock(&self.dispatch.book);
        book.write(rule, self.place(), &header, Deed::Held);
        book.keep(Kept {
            rule,
            header,
            frame,
            hold,
            since: Instant::now(),
            progress: 0,
            origin: Arc::<Link>::clone(self),
        });
        drop(book);
        if cut {
            self.cut_client();
        }
        if let Until::After(time) = until {
            let dispatch = Arc::clone(&self.dispatch);
            thread::spawn(move || {
                thread::sleep(time);
                let due = lock(&dispatch.book).take_ripe();
                dispatch.deliver(due);
            });
        }
    }

    fn refuse(&self, rule: RuleId, code: i16, header: Header, request: &[u8]) -> io::Result<()> {
        let refusal = answers::refusal(&header, request, code).map_err(io::Error::other)?;
        match refusal {
            Some(refusal) => {
                self.log(rule, &header, Deed::Answered(code));
                let _turn = lock(&self.to_client);
                frame::write(&mut &self.client, &refusal)
            }
            None => self.pass(header, Fate::Pass, request),
        }
    }

    fn pass(&self, header: Header, fate: Fate, request: &[u8]) -> io::Result<()> {
        // Both under one lock, so that pending requests are in the order in which they were sent.
        let _turn = lock(&self.to_broker);
        lock(&self.pending).push_back(Pending { header, fate });
        frame::write(&mut &self.upstream, request)
    }

    fn take_answers(&self, from: &mut TcpStream) -> io::Result<()> {
        while let Some(answer) = frame::read(from, frame::LARGEST)? {
            match self.pending_of(&answer) {
                Some(Pending { header, fate }) => self.answer(&header, fate, &answer),
                None => self.to_client(&answer),
            }
            if self.is_over() {
                break;
            }
        }
        Ok(())
    }

    fn answer(&self, header: &Header, fate: Fate, answer: &[u8]) {
        let code = || answers::code(header, answer);
        match fate {
            Fate::Pass => {
                // A response of an unsupported API counts as success.
                if code().unwrap_or(0) == 0 {
                    let due = lock(&self.dispatch.book).answered(header);
                    self.dispatch.deliver(due);
                }
                self.to_client(answer);
            }
            Fate::Discard => {}
            Fate::Lose { rule, cut } => {
                self.log(rule, header, Deed::AnswerLost(code()));
                if cut {
                    self.cut_client();
                }
            }
            Fate::Late { rule, kept } => {
                let late = Late {
                    header: header.clone(),
                    kept,
                    code: code(),
                };
                let mut book = lock(&self.dispatch.book);
                book.write(rule, self.place(), header, Deed::Delivered(late.code));
                book.delivered(rule, late);
                drop(book);
                self.to_client(answer);
            }
        }
    }

    fn to_client(&self, answer: &[u8]) {
        if self.cut.load(Ordering::Acquire) {
            return;
        }
        let turn = lock(&self.to_client);
        let written = frame::write(&mut &self.client, answer);
        drop(turn);
        if written.is_err() {
            self.client_is_gone();
        }
    }

    fn pending_of(&self, answer: &[u8]) -> Option<Pending> {
        let correlation = frame::correlation(answer)?;
        let mut pending = lock(&self.pending);
        let at = pending
            .iter()
            .position(|p| p.header.correlation == correlation)?;
        pending.remove(at)
    }

    fn is_over(&self) -> bool {
        self.cut.load(Ordering::Acquire)
            && self.promised.load(Ordering::Acquire) == 0
            && lock(&self.pending).is_empty()
    }

    /// Cuts the client's side. The broker's side stays open while a response or a kept request is pending.
    fn cut_client(&self) {
        self.cut.store(true, Ordering::Release);
        // The connection may be closed already.
        let _ = self.client.shutdown(Shutdown::Both);
        if self.is_over() {
            self.close();
        }
    }

    /// Closes both sides after the client has closed its connection. If the proxy cut the client, the broker's side
    /// stays open while a response or a kept request is pending.
    fn client_is_gone(&self) {
        if !self.cut.load(Ordering::Acquire) || self.is_over() {
            self.close();
        }
    }

    /// Closes both sides.
    pub(super) fn close(&self) {
        for side in [&self.client, &self.upstream] {
            let _ = side.shutdown(Shutdown::Both);
        }
    }

    fn log(&self, rule: RuleId, header: &Header, deed: Deed) {
        lock(&self.dispatch.book).write(rule, self.place(), header, deed);
    }
}

impl Origin for Link {
    fn place(&self) -> (u64, usize) {
        (self.number, self.broker)
    }

    fn send_late(&self, rule: RuleId, header: Header, request: &[u8], kept: Duration) {
        // On a closed connection there is no response, so the log does not contain the delivery.
        let _ = self.pass(header, Fate::Late { rule, kept }, request);
        self.promised.fetch_sub(1, Ordering::AcqRel);
    }
}
