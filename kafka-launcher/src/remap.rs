//! The addresses of containers, replaced by addresses of this machine.
//!
//! Containers have their own addresses, but processes on one machine share one. This module replaces only hosts and
//! ports, and checks every address that it replaces.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::compose::{Listener, Service};
use crate::ports;

/// The ports that replace the containers' ports, by service and listener.
pub(crate) struct Ports<'a> {
    services: &'a BTreeMap<String, Service>,
    chosen: BTreeMap<(String, String), u16>,
}

impl Ports<'_> {
    pub(crate) fn choose(services: &BTreeMap<String, Service>) -> Result<Ports<'_>> {
        let mut keys = Vec::new();
        for service in services.values() {
            service.check_addresses()?;
            let listeners = service.listeners()?.into_iter();
            keys.extend(listeners.map(|listener| (service.name.clone(), listener.name)));
        }
        let free = ports::free(keys.len())?;
        Ok(Ports {
            services,
            chosen: keys.into_iter().zip(free).collect(),
        })
    }

    fn of(&self, service: &str, listener: &str) -> Result<u16> {
        let key = (service.to_owned(), listener.to_owned());
        let port = self.chosen.get(&key).copied();
        port.with_context(|| format!("service `{service}` has no listener {listener}"))
    }

    /// Returns the container's environment with this machine's addresses instead of the container's.
    pub(crate) fn environment(&self, service: &Service) -> Result<BTreeMap<String, String>> {
        let mut environment = service.environment.clone();
        let here = |listener: &Listener| {
            let port = self.of(&service.name, &listener.name)?;
            Ok(format!("{}://127.0.0.1:{port}", listener.name))
        };
        let join = |listeners: Vec<Listener>| -> Result<String> {
            let all: Result<Vec<_>> = listeners.iter().map(here).collect();
            Ok(all?.join(","))
        };
        let voters = service.variable("KAFKA_CONTROLLER_QUORUM_VOTERS")?;
        let voters: Result<Vec<_>> = voters.split(',').map(|v| self.voter(v, service)).collect();
        environment.insert("KAFKA_LISTENERS".into(), join(service.listeners()?)?);
        environment.insert(
            "KAFKA_ADVERTISED_LISTENERS".into(),
            join(service.advertised()?)?,
        );
        environment.insert("KAFKA_CONTROLLER_QUORUM_VOTERS".into(), voters?.join(","));
        Ok(environment)
    }

    /// Replaces `id@host:port`. The host's container must have that id and a controller at that port.
    fn voter(&self, voter: &str, asking: &Service) -> Result<String> {
        let parts = voter.split_once('@');
        let parts = parts.and_then(|(id, address)| Some((id, address.rsplit_once(':')?)));
        let (id, (host, port)) = parts.with_context(|| format!("voter `{voter}`"))?;
        let host = if host == "localhost" {
            &asking.name
        } else {
            host
        };
        let service = self
            .services
            .get(host)
            .with_context(|| format!("voter `{voter}`: no such service"))?;
        ensure!(
            service.variable("KAFKA_NODE_ID")? == id,
            "voter `{voter}` has another id"
        );
        let controller = service.variable("KAFKA_CONTROLLER_LISTENER_NAMES")?;
        let listeners = service.listeners()?;
        let found = listeners
            .iter()
            .find(|l| l.name == controller && l.port.to_string() == port);
        ensure!(
            found.is_some(),
            "voter `{voter}`: no controller listens there"
        );
        Ok(format!("{id}@127.0.0.1:{}", self.of(host, controller)?))
    }
}

/// Returns the port of the listener that is advertised on localhost, for clients on this machine.
pub(crate) fn clients_port(service: &Service, ports: &Ports<'_>) -> Result<u16> {
    let advertised = service.advertised()?;
    let local = advertised
        .iter()
        .find(|listener| listener.host == "localhost");
    let local = local
        .with_context(|| format!("service `{}` advertises nothing on localhost", service.name))?;
    ports.of(&service.name, &local.name)
}
