//! The Kafka containers of `docker-compose.yml`, checked for consistency.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::yaml::{self, Yaml};

/// One container, with the environment that its setup program converts into broker properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Service {
    /// The service's name, which is also its host name in the container network.
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) environment: BTreeMap<String, String>,
    /// Ports on this machine, each with the container port that it maps to.
    pub(crate) published: Vec<(u16, u16)>,
}

/// `NAME://host:port`, as in `KAFKA_LISTENERS`. No host means all interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Returns every service of the file, by name.
pub(crate) fn read(file: &Path) -> Result<BTreeMap<String, Service>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    services(&text).with_context(|| format!("in {}", file.display()))
}

fn services(text: &str) -> Result<BTreeMap<String, Service>> {
    let document = yaml::parse(text)?;
    let services = document.get("services")?.map()?.iter();
    let services = services.map(|(name, yaml)| {
        let service = service(name, yaml).with_context(|| format!("service `{name}`"))?;
        Ok((name.clone(), service))
    });
    services.collect()
}

fn service(name: &str, yaml: &Yaml) -> Result<Service> {
    let mut environment = BTreeMap::new();
    for (key, value) in yaml.get("environment")?.map()? {
        let value = value.scalar().with_context(|| format!("`{key}`"))?;
        ensure!(
            !value.contains('$'),
            "`{key}`: compose would substitute the `$`"
        );
        environment.insert(key.clone(), value.to_owned());
    }
    let published = yaml
        .get("ports")?
        .list()?
        .iter()
        .map(|port| published(port));
    Ok(Service {
        name: name.to_owned(),
        image: yaml.get("image")?.scalar()?.to_owned(),
        environment,
        published: published.collect::<Result<_>>()?,
    })
}

/// Parses `127.0.0.1:9092:9092`: an address of this machine, its port, the container's port.
fn published(text: &str) -> Result<(u16, u16)> {
    let parts: Vec<_> = text.split(':').collect();
    let [address, outer, inner] = parts.as_slice() else {
        anyhow::bail!(
            "port `{text}`: write 127.0.0.1:outer:inner, so that only this machine can connect"
        );
    };
    ensure!(
        *address == "127.0.0.1",
        "port `{text}` would be open to the network"
    );
    Ok((outer.parse()?, inner.parse()?))
}

impl Service {
    pub(crate) fn variable(&self, name: &str) -> Result<&str> {
        let found = self.environment.get(name).map(String::as_str);
        found.with_context(|| format!("service `{}` sets no {name}", self.name))
    }

    /// Returns the listeners inside the container.
    pub(crate) fn listeners(&self) -> Result<Vec<Listener>> {
        listeners(self.variable("KAFKA_LISTENERS")?)
    }

    /// Returns the advertised listeners.
    pub(crate) fn advertised(&self) -> Result<Vec<Listener>> {
        listeners(self.variable("KAFKA_ADVERTISED_LISTENERS")?)
    }

    /// Returns the broker properties that the image's setup program derives from the environment.
    #[cfg(test)]
    fn properties(&self) -> BTreeMap<String, String> {
        let ours = self.environment.iter().filter_map(|(key, value)| {
            let key = key.strip_prefix("KAFKA_")?.to_lowercase().replace('_', ".");
            Some((key, value.clone()))
        });
        ours.filter(|(key, _)| key != "heap.opts").collect()
    }

    /// Checks that every advertised address leads back to the listener of its name. The address is a published port of
    /// this machine, or the container's own name.
    pub(crate) fn check_addresses(&self) -> Result<()> {
        let listeners = self.listeners()?;
        for advertised in self.advertised()? {
            let name = &advertised.name;
            let listener = listeners.iter().find(|listener| listener.name == *name);
            let inner = listener
                .with_context(|| format!("no listener {name}"))?
                .port;
            let leads = if advertised.host == "localhost" {
                self.published.contains(&(advertised.port, inner)) && advertised.port == inner
            } else {
                advertised.host == self.name && advertised.port == inner
            };
            ensure!(
                leads,
                "service `{}`: {advertised:?} is not reachable",
                self.name
            );
        }
        Ok(())
    }
}

fn listeners(text: &str) -> Result<Vec<Listener>> {
    text.split(',').map(listener).collect()
}

fn listener(text: &str) -> Result<Listener> {
    let parts = text.split_once("://");
    let parts = parts.and_then(|(name, address)| Some((name, address.rsplit_once(':')?)));
    let (name, (host, port)) =
        parts.with_context(|| format!("`{text}` is not NAME://host:port"))?;
    Ok(Listener {
        name: name.to_owned(),
        host: host.to_owned(),
        port: port
            .parse()
            .with_context(|| format!("the port of `{text}`"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths;
    use crate::{VERSION, docker, properties};

    fn ours() -> BTreeMap<String, Service> {
        read(&paths::workspace_root().join("docker-compose.yml")).unwrap()
    }

    #[test]
    fn containers_run_the_version_and_the_properties_of_the_launcher() {
        let services = ours();
        for nodes in [1, 3] {
            let expected: BTreeMap<_, _> = properties::common(nodes)
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect();
            for name in docker::services(nodes) {
                let service = &services[*name];
                assert_eq!(service.image, format!("apache/kafka:{VERSION}"));
                let mut properties = service.properties();
                properties.retain(|key, _| !IDENTITY.contains(&key.as_str()));
                assert_eq!(properties, expected, "{name}");
            }
        }
        let others = services.keys().filter(|name| *name != "postgres");
        assert_eq!(others.count(), 4);
    }

    /// The properties that identify a node and its listeners.
    const IDENTITY: [&str; 8] = [
        "node.id",
        "process.roles",
        "listeners",
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
    ];

    #[test]
    fn every_advertised_address_leads_to_the_broker() {
        for nodes in [1, 3] {
            let services = ours();
            let mut published = Vec::new();
            for name in docker::services(nodes) {
                services[*name].check_addresses().unwrap();
                let ports = services[*name].published.iter();
                published.extend(ports.map(|(outer, _)| format!("localhost:{outer}")));
            }
            assert_eq!(published.join(","), docker::bootstrap(nodes));
        }
    }

    #[test]
    fn an_address_that_leads_nowhere_is_found() {
        let mut service = ours()["kafka"].clone();
        service.published = vec![(9093, 9092)];
        assert!(service.check_addresses().is_err());
    }

    #[test]
    fn ports_open_to_the_network_are_refused() {
        assert_eq!(published("127.0.0.1:1:2").unwrap(), (1, 2));
        assert!(published("9092:9092").is_err());
        assert!(published("0.0.0.0:9092:9092").is_err());
    }
}
