//! `eos kafka up | down | status`: one cluster per checkout that stays until `down` stops it.
//!
//! No command here touches a broker of another checkout, or replaces one of another kind.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};
use kafka_launcher::{
    BOOTSTRAP_VAR, Cluster, ClusterOptions, Detached, MissingPrograms, VERSION, docker, external,
    kill_orphans, paths, ports, ready,
};
use kafka_wire::Client;

use super::embedded::Embedded;
use super::place::{Other, Place, State};
use crate::program::program;

/// The usual port of Kafka.
const USUAL_PORT: u16 = 9092;

const PATIENCE: Duration = Duration::from_secs(20);

/// The options of `up`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Up {
    /// 1 or 3. If `None`, the number of nodes of the running cluster, otherwise 1.
    pub(crate) nodes: Option<u8>,
    /// The port of the first node. If `None`, 9092 if it is free, otherwise any free port.
    pub(crate) port: Option<u16>,
    /// In containers, by `docker-compose.yml`.
    pub(crate) docker: bool,
    /// The broker of `eos-broker`: no JVM, one node, everything in memory.
    pub(crate) embedded: bool,
    /// Whether the data of this checkout's cluster is removed first.
    pub(crate) fresh: bool,
}

/// Starts a cluster unless it is up. Returns its addresses.
///
/// # Errors
/// When it cannot start, or a different one is up.
pub(crate) fn up(wanted: &Up) -> Result<String> {
    if let Some(theirs) = external() {
        eprintln!(
            "{} is set: using that cluster, starting nothing.",
            BOOTSTRAP_VAR
        );
        return Ok(theirs);
    }
    let place = Place::find()?;
    let _one_at_a_time = paths::lock(&place.lock)?;
    let earlier = place.load()?;
    if let Some(state) = &earlier
        && let Some(difference) = difference(state, wanted)
    {
        bail!(
            "a different Kafka is up, {} at {} ({difference}): `{} kafka down` stops it and removes its data",
            state.kind(),
            state.bootstrap(),
            program()
        );
    }
    let state = match earlier {
        Some(state) if !wanted.fresh => return Ok(again(state, &place)?.bootstrap()),
        Some(state) => {
            remove(&state, &place)?;
            first(wanted, &place)?
        }
        None => first(wanted, &place)?,
    };
    eprintln!(
        "{} is up at {}. `{} kafka down` stops it and removes its data.",
        state.kind(),
        state.bootstrap(),
        program()
    );
    Ok(state.bootstrap())
}

fn first(wanted: &Up, place: &Place) -> Result<State> {
    let nodes = wanted.nodes.unwrap_or(1);
    if wanted.embedded && nodes != 1 {
        bail!("the embedded broker is one node: omit --nodes {nodes} or --embedded");
    }
    let state = if wanted.embedded {
        // An interrupted `up` may have left brokers and data without a state.
        kill_orphans(&place.data)?;
        paths::remove_dir(&place.data)?;
        State::Embedded(on_a_port(wanted, 1, place, |port| {
            start_embedded(port, place)
        })?)
    } else if wanted.docker {
        // Its ports and container names are those of docker-compose.yml, once per machine.
        let containers = |other: &Other| matches!(other.state, State::Containers { .. });
        if let Some(other) = place.others().into_iter().find(containers) {
            bail!(
                "the ports of docker-compose.yml are in use ({other}): stop it there with `{} kafka down`, or omit --docker",
                program()
            );
        }
        docker::check()?;
        // Saved before the start, so that `down` finds the containers of a start that failed halfway.
        place.save(&State::Containers { nodes })?;
        docker::up(nodes)?;
        State::Containers { nodes }
    } else {
        // An interrupted `up` may have left brokers and data without a state.
        kill_orphans(&place.data)?;
        paths::remove_dir(&place.data)?;
        State::Jvms(on_a_port(wanted, nodes, place, |port| {
            let mut options = ClusterOptions::default().nodes(nodes).outlives_owner();
            options = options.data_dir(&place.data);
            if let Some(port) = port {
                options = options.port(port);
            }
            let cluster = Cluster::start(&options).map_err(name_embedded)?;
            cluster.detach()
        })?)
    };
    place.save(&state)?;
    Ok(state)
}

/// A real Kafka cannot start. The embedded broker needs none of the missing programs.
#[derive(Debug)]
struct NoRealKafka(MissingPrograms);

impl fmt::Display for NoRealKafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (missing, program) = (self.0, program());
        write!(
            f,
            "cannot start a real Kafka: {missing}. Or start a broker without Java: `{program} kafka up --embedded`"
        )
    }
}

impl std::error::Error for NoRealKafka {}

fn name_embedded(error: anyhow::Error) -> anyhow::Error {
    match error.downcast() {
        Ok(missing) => NoRealKafka(missing).into(),
        Err(other) => other,
    }
}

fn start_embedded(port: Option<u16>, place: &Place) -> Result<Embedded> {
    let started = Embedded::start(port, &place.data, |embedded| {
        place.save(&State::Embedded(embedded.clone()))
    });
    if started.is_err() {
        place.forget()?;
    }
    started
}

/// Starts on the wanted port, or on the usual one. If another program takes the usual port between the check and the
/// start, starts on free ports.
fn on_a_port<T>(
    wanted: &Up,
    nodes: u8,
    place: &Place,
    mut start: impl FnMut(Option<u16>) -> Result<T>,
) -> Result<T> {
    let port = choose_port(wanted.port, nodes, place)?;
    let started = start(port);
    match (&started, port) {
        (Err(error), Some(port)) if wanted.port.is_none() && !ports::is_free(port) => {
            eprintln!("Port {port} was taken meanwhile ({error:#}). Using free ports.");
            paths::remove_dir(&place.data)?;
            start(None)
        }
        _ => started,
    }
}

fn choose_port(wanted: Option<u16>, nodes: u8, place: &Place) -> Result<Option<u16>> {
    let first = wanted.unwrap_or(USUAL_PORT);
    let last = first.saturating_add(u16::from(nodes - 1));
    let Some(taken) = (first..=last).find(|port| !ports::is_free(*port)) else {
        return Ok(Some(first));
    };
    let owner = place
        .others()
        .into_iter()
        .find(|other| listens(other, taken));
    let by = owner.map_or_else(String::new, |other| format!(" by {other}"));
    if wanted.is_some() {
        bail!("port {taken} is taken{by}: choose another with --port, or omit --port");
    }
    // Another Kafka may listen on the taken port. Clients that use it would not notice.
    eprintln!(
        "Port {taken} is taken{by}. Using free ports. A program that assumes \
         localhost:{USUAL_PORT} needs the following lines in its environment."
    );
    Ok(None)
}

fn listens(other: &Other, port: u16) -> bool {
    let end = format!(":{port}");
    other
        .state
        .bootstrap()
        .split(',')
        .any(|address| address.ends_with(&end))
}

/// Returns the cluster that is up, and restarts its ended nodes, for example after a reboot.
fn again(state: State, place: &Place) -> Result<State> {
    match state {
        State::Jvms(mut detached) => {
            let revived = detached.revive()?;
            if revived {
                place.save(&State::Jvms(detached.clone()))?;
            }
            detached.wait_ready()?;
            tell_what_is_there(&detached.bootstrap(), revived)?;
            Ok(State::Jvms(detached))
        }
        State::Containers { nodes } => docker::up(nodes).map(|()| state),
        State::Embedded(embedded) => {
            let ended = !embedded.is_alive();
            let embedded = if ended {
                start_embedded(Some(embedded.port()), place)?
            } else {
                embedded
            };
            tell_what_is_there(&embedded.bootstrap(), ended)?;
            Ok(State::Embedded(embedded))
        }
    }
}

/// Prints the existing topics. Old topics and offsets would confuse a user who expects an empty Kafka.
fn tell_what_is_there(bootstrap: &str, revived: bool) -> Result<()> {
    let topics = Client::connect(bootstrap, PATIENCE)?.metadata(None)?.topics;
    let names = topics.into_keys().filter(|name| !name.starts_with("__"));
    let names: Vec<_> = names.collect();
    let how = if revived {
        "Kafka had ended and was restarted"
    } else {
        "Kafka was up already"
    };
    let what = match &names[..] {
        [] => "it has no topics".to_owned(),
        names => format!("it still has the topics {}", names.join(", ")),
    };
    eprintln!(
        "{how}: {what}. `{} kafka up --fresh` starts an empty one.",
        program()
    );
    Ok(())
}

fn difference(state: &State, wanted: &Up) -> Option<String> {
    let nodes = state.nodes();
    if wanted.nodes.is_some_and(|wanted| wanted != nodes) {
        return Some(format!("with {nodes} nodes"));
    }
    match state {
        State::Containers { .. } if !wanted.docker => Some("in Docker".into()),
        State::Jvms(_) | State::Embedded(_) if wanted.docker => Some("not in Docker".into()),
        State::Jvms(_) if wanted.embedded => Some("not the embedded one".into()),
        State::Embedded(_) if !wanted.embedded => Some("the embedded one".into()),
        State::Embedded(embedded) => {
            let port = embedded.port();
            let other = wanted.port.is_some_and(|wanted| wanted != port);
            other.then(|| format!("on port {port}"))
        }
        State::Jvms(detached) => {
            let port = detached.nodes().next()?.0.port;
            let other = wanted.port.is_some_and(|wanted| wanted != port);
            other.then(|| format!("on port {port}"))
        }
        State::Containers { .. } => None,
    }
}

/// Stops what `up` started and removes its data. Returns a summary as text.
///
/// # Errors
/// When a process cannot be stopped or data cannot be removed.
pub(crate) fn down() -> Result<String> {
    let place = Place::find()?;
    let _one_at_a_time = paths::lock(&place.lock)?;
    let Some(state) = place.load()? else {
        return Ok(none_is_up(&place));
    };
    remove(&state, &place)?;
    let nodes = state.nodes();
    Ok(format!(
        "Kafka is down: {nodes} node(s) stopped, data removed."
    ))
}

fn remove(state: &State, place: &Place) -> Result<()> {
    match state {
        State::Jvms(detached) => detached.destroy()?,
        State::Containers { .. } => match docker::check() {
            Ok(()) => docker::down()?,
            // A warning only. An error would prevent every later start of a Kafka here.
            Err(error) => eprintln!("warning: containers may still run: {error:#}"),
        },
        State::Embedded(embedded) => embedded.destroy()?,
    }
    place.forget()
}

/// Returns the address of the user's cluster: the one in the environment, or the one that `up` started.
pub(super) fn address() -> Result<String> {
    if let Some(theirs) = external() {
        return Ok(theirs);
    }
    let place = Place::find()?;
    if let Some(state) = place.load()? {
        return Ok(state.bootstrap());
    }
    let others = place.others();
    let elsewhere = others.iter().map(|other| {
        let address = other.state.bootstrap();
        format!(
            "\nElsewhere: {other}. Use it with {BOOTSTRAP_VAR}={address}, or from that directory."
        )
    });
    bail!(
        "no local Kafka is up for {}: start one with `{} kafka up`, or set {BOOTSTRAP_VAR} to the address of yours{}",
        place.owner(),
        program(),
        elsewhere.collect::<String>()
    )
}

/// Returns the nodes, processes, ports and readiness of the cluster, as text for people.
///
/// # Errors
/// When the state in the cache cannot be read.
pub(crate) fn status() -> Result<String> {
    if let Some(theirs) = external() {
        let answer = verdict(&theirs, 1);
        return Ok(format!("{} is set: {theirs}, {answer}", BOOTSTRAP_VAR));
    }
    let place = Place::find()?;
    let Some(state) = place.load()? else {
        return Ok(none_is_up(&place));
    };
    let what = match &state {
        State::Embedded(_) => "The embedded broker, not Apache Kafka".to_owned(),
        State::Jvms(_) | State::Containers { .. } => format!("Kafka {VERSION}"),
    };
    let mut lines = vec![format!("{what}, {} node(s)", state.nodes())];
    match &state {
        State::Jvms(detached) => lines.extend(node_lines(detached)),
        State::Containers { nodes } => {
            let addresses = docker::bootstrap(*nodes).split(',');
            lines.extend(
                addresses.map(|a| format!("container at {a}: {}", verdict(a, usize::from(*nodes)))),
            );
        }
        State::Embedded(_) => {}
    }
    if let State::Embedded(embedded) = &state {
        let (port, answer) = (embedded.port(), verdict(&embedded.bootstrap(), 1));
        lines.push(format!("pid {}, port {port}, {answer}", embedded.pid()));
    }
    lines.push(environment(&state.bootstrap()));
    Ok(lines.join("\n"))
}

/// Returns a text that also lists the clusters of other checkouts, which no command here touches.
fn none_is_up(place: &Place) -> String {
    let mut lines = vec![format!(
        "No local Kafka is up for {}. `{} kafka up` starts one.",
        place.owner(),
        program()
    )];
    let others = place.others();
    lines.extend(others.iter().map(|other| format!("Elsewhere: {other}.")));
    lines.join("\n")
}

/// Returns the address of the cluster as settings: lines for a shell or an env file.
#[must_use]
pub(crate) fn environment(bootstrap: &str) -> String {
    format!(
        "# for eos and your apps (overrides the address in the program):\n{BOOTSTRAP_VAR}={bootstrap}"
    )
}

fn node_lines(detached: &Detached) -> Vec<String> {
    let count = detached.nodes().count();
    let lines = detached.nodes().map(|(node, process)| {
        let (process, answer) = match process {
            Some(process) => (
                format!("pid {}", process.pid),
                verdict(&node.address(), count),
            ),
            None => (
                "no process".into(),
                format!("ended: `{} kafka up` starts it again", program()),
            ),
        };
        let (id, port, log) = (node.id, node.port, node.log());
        format!(
            "node {id}: {process}, port {port}, {answer}; log {}",
            log.display()
        )
    });
    lines.collect()
}

fn verdict(address: &str, nodes: usize) -> String {
    match ready::ask(address, nodes) {
        Ok(()) => "ready".into(),
        Err(error) => format!("not ready ({:#})", error.root_cause()),
    }
}
