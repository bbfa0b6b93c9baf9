//! The HTTP endpoint that Prometheus scrapes.
//!
//! One thread serves one request at a time, and only `GET /metrics`. That is enough for a scraper, and takes a hundred
//! lines and no HTTP library. There is no TLS and no password, so a bare port is opened on the loopback interface only.
//! A program that needs more serves [`Metrics::to_prometheus`](super::Metrics::to_prometheus) with its own server.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time limit of one request, including its response. Other requests wait for it.
const PATIENCE: Duration = Duration::from_secs(2);
/// The maximum size of a request in bytes. A scraper sends some hundred bytes.
const MAX_REQUEST: usize = 8 << 10;
/// The pause after a connection could not be accepted, for example because too many files are open.
const RESPITE: Duration = Duration::from_millis(100);

/// The address for the metrics can't be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "metrics can't be served at {address:?}: {source}. Give `prometheus(..)` a port, which is opened \
     for this host only, or `host:port`. Each process needs a port of its own; 0 takes a free one, \
     which the log names"
)]
#[non_exhaustive]
pub struct EndpointError {
    /// The address of [`App::prometheus`](crate::App::prometheus).
    pub address: String,
    /// The cause.
    pub source: io::Error,
}

/// An open port whose connections no thread accepts yet.
#[derive(Debug)]
pub(crate) struct Endpoint {
    listener: TcpListener,
    address: SocketAddr,
}

impl Endpoint {
    /// Opens `host:port`, or a port on the loopback interface.
    pub(crate) fn bind(address: &str) -> Result<Self, EndpointError> {
        let listener = match address.parse::<u16>() {
            Ok(port) => TcpListener::bind((Ipv4Addr::LOCALHOST, port)),
            Err(_) => TcpListener::bind(address),
        };
        let opened = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = opened.map_err(|source| EndpointError {
            address: address.to_owned(),
            source,
        })?;
        Ok(Self { listener, address })
    }

    /// Responds with the text of `read`, on its own thread, until the returned [`Serving`] is dropped.
    pub(crate) fn serve(
        self,
        read: impl Fn() -> String + Send + 'static,
    ) -> Result<Serving, io::Error> {
        let over = Arc::new(AtomicBool::new(false));
        let serving = Serving {
            over: Arc::clone(&over),
            address: self.address,
        };
        std::thread::Builder::new()
            .name("eos-metrics".into())
            .spawn(move || {
                for stream in self.listener.incoming() {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    match stream {
                        // A client that disconnects is no error of the app.
                        Ok(stream) => drop(answer(stream, &read)),
                        Err(_) => std::thread::sleep(RESPITE),
                    }
                }
            })?;
        tracing::info!(address = %serving.address, "metrics at /metrics");
        Ok(serving)
    }
}

/// A running endpoint. Its drop ends the thread.
#[derive(Debug)]
pub(crate) struct Serving {
    over: Arc<AtomicBool>,
    address: SocketAddr,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // The thread waits for a connection. If this one fails, the thread ends at the next connection.
        let mut here = self.address;
        if here.ip().is_unspecified() {
            here.set_ip(match here {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        drop(TcpStream::connect_timeout(&here, RESPITE));
    }
}

fn answer(mut stream: TcpStream, read: &impl Fn() -> String) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    let request = request(&mut stream, end)?;
    let mut words = request.split(' ');
    let (method, target) = (words.next(), words.next());
    let path = target.map(|target| target.split('?').next().unwrap_or(target));
    let (status, text) = match (method, path) {
        (Some("GET"), Some("/metrics")) => ("200 OK", read()),
        (Some("GET"), Some(_)) => ("404 Not Found", "the metrics are at /metrics\n".to_owned()),
        _ => (
            "400 Bad Request",
            "only GET /metrics is supported\n".to_owned(),
        ),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    send(&mut stream, (head + &text).as_bytes(), end)?;
    stream.shutdown(Shutdown::Write)
}

/// Reads the head of the request. Returns its first line.
fn request(stream: &mut TcpStream, end: Instant) -> io::Result<String> {
    let mut head = Vec::new();
    let mut some = [0; 1024];
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        if head.len() > MAX_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.set_read_timeout(Some(left(end)?))?;
        match stream.read(&mut some)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => head.extend_from_slice(some.get(..n).unwrap_or_default()),
        }
    }
    let line = head.split(|&b| b == b'\r').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}

/// A timeout begins again with each write, so each write gets the remaining time of one deadline.
fn send(stream: &mut TcpStream, mut bytes: &[u8], end: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => bytes = bytes.get(n..).unwrap_or_default(),
        }
    }
    Ok(())
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time after which a test gives up on a response.
    const HANGS: Duration = Duration::from_secs(30);

    fn serving(text: &'static str) -> Serving {
        let endpoint = Endpoint::bind("0").unwrap();
        endpoint.serve(move || text.to_owned()).unwrap()
    }

    /// Repeats the request if the connection was closed after the time limit of a request: a stall of the machine may
    /// use up that time.
    fn ask(address: SocketAddr, request: &str) -> String {
        let begun = Instant::now();
        loop {
            let asked = Instant::now();
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(HANGS)).unwrap();
            let mut answer = String::new();
            let heard = stream
                .write_all(request.as_bytes())
                .and_then(|()| stream.read_to_string(&mut answer));
            if heard.is_ok() && !answer.is_empty() {
                return answer;
            }
            let late = asked.elapsed() >= PATIENCE && begun.elapsed() < HANGS;
            assert!(late, "{heard:?} {answer:?}");
        }
    }

    #[test]
    fn a_scraper_gets_the_text_and_its_length() {
        let serving = serving("eos_aborts_total 3\n");
        for target in ["/metrics", "/metrics?name=eos_aborts_total"] {
            let request = format!("GET {target} HTTP/1.1\r\nHost: here\r\n\r\n");
            let answer = ask(serving.address, &request);
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert!(head.contains("Content-Length: 19\r\n"), "{head}");
            assert!(head.contains("text/plain; version=0.0.4"), "{head}");
            assert_eq!(body, "eos_aborts_total 3\n");
        }
    }

    #[test]
    fn other_requests_get_the_path_of_the_metrics() {
        let serving = serving("secret");
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "400"),
            ("\r\n\r\n", "400"),
            ("\u{1}\u{2}\u{3}\r\n\r\n", "400"),
        ] {
            let answer = ask(serving.address, request);
            let expected = format!("HTTP/1.1 {status} ");
            assert!(answer.starts_with(&expected), "{request:?}: {answer}");
            assert!(answer.contains("/metrics") && !answer.contains("secret"));
        }
    }

    #[test]
    fn a_silent_or_oversized_request_does_not_block_others() {
        let serving = serving("text");
        let silent = TcpStream::connect(serving.address).unwrap();
        let mut talker = TcpStream::connect(serving.address).unwrap();
        // It may be cut off in the middle.
        let _ = talker.write_all(&[b'x'; 3 * MAX_REQUEST]);
        let answer = ask(serving.address, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.ends_with("text"), "{answer}");
        drop(silent);
    }

    #[test]
    fn a_port_is_opened_on_loopback_only_and_closed_with_the_app() {
        let serving = serving("text");
        let address = serving.address;
        assert!(address.ip().is_loopback());
        drop(serving);
        let begun = Instant::now();
        while TcpStream::connect(address).is_ok() {
            assert!(begun.elapsed() < HANGS, "still open");
        }
    }

    #[test]
    fn an_address_that_is_taken_or_none_is_named_with_the_way_out() {
        let first = Endpoint::bind("127.0.0.1:0").unwrap();
        let taken = first.address.to_string();
        for address in [&taken[..], "nonsense", "70000", ""] {
            let error = Endpoint::bind(address).unwrap_err();
            assert_eq!(error.address, address);
            let text = error.to_string();
            assert!(text.contains(&format!("{address:?}")), "{text}");
            assert!(text.contains("a port of its own"), "{text}");
        }
    }
}
