//! The encryption of connections.

use crate::url_error::UrlError;

/// The encryption of the connections of a target. A certificate is always verified.
#[derive(Clone)]
pub(crate) enum Tls {
    Off,
    #[cfg(feature = "tls")]
    Verified(tokio_postgres_rustls::MakeRustlsConnect),
}

/// Selects the encryption. Without it, rows cross a network only if the URL allows this.
pub(crate) fn choose(
    host: &str,
    is_local: bool,
    mode: Option<&str>,
    root_certificate: Option<&str>,
) -> Result<Tls, UrlError> {
    match mode {
        Some("insecure") => Ok(Tls::Off),
        Some("disable") if is_local => Ok(Tls::Off),
        Some("disable") => Err(UrlError::NotEncrypted {
            host: host.to_owned(),
            reason: "sslmode=disable. Remove it",
        }),
        None | Some("prefer") if is_local => Ok(Tls::Off),
        None | Some("prefer" | "require" | "verify-ca" | "verify-full") => {
            verified(host, root_certificate)
        }
        Some(mode) => Err(UrlError::Mode {
            mode: mode.to_owned(),
        }),
    }
}

#[cfg(not(feature = "tls"))]
fn verified(host: &str, _root_certificate: Option<&str>) -> Result<Tls, UrlError> {
    Err(UrlError::NotEncrypted {
        host: host.to_owned(),
        reason: "eos-postgres was built without its feature `tls`. Enable it",
    })
}

#[cfg(feature = "tls")]
fn verified(host: &str, root_certificate: Option<&str>) -> Result<Tls, UrlError> {
    let failed = |cause: String| UrlError::Certificates {
        host: host.to_owned(),
        cause,
    };
    let mut roots = rustls::RootCertStore::empty();
    match root_certificate {
        Some(path) => {
            use rustls::pki_types::CertificateDer;
            use rustls::pki_types::pem::PemObject;
            let named = |error: String| failed(format!("{path}: {error}"));
            let certificates =
                CertificateDer::pem_file_iter(path).map_err(|error| named(error.to_string()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| named(error.to_string()))?;
                roots
                    .add(certificate)
                    .map_err(|error| named(error.to_string()))?;
            }
        }
        None => {
            // Certificates that cannot be parsed are ignored, because the others suffice.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(failed(
            "there are none. Name a PEM file with sslrootcert=/path in the URL".into(),
        ));
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Tls::Verified(
        tokio_postgres_rustls::MakeRustlsConnect::new(config),
    ))
}

/// Returns the fix for a certificate that can't be verified. Until it is fixed, each attempt fails.
#[cfg(feature = "tls")]
pub(crate) fn advice(error: &tokio_postgres::Error) -> Option<&'static str> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(error);
    while let Some(cause) = source {
        let of_io = cause.downcast_ref::<std::io::Error>();
        let inner = of_io.and_then(|error| error.get_ref());
        let of_tls = match inner {
            Some(inner) => inner.downcast_ref::<rustls::Error>(),
            None => cause.downcast_ref::<rustls::Error>(),
        };
        if let Some(rustls::Error::InvalidCertificate(cause)) = of_tls {
            use rustls::CertificateError as Cause;
            return Some(match cause {
                Cause::NotValidForName | Cause::NotValidForNameContext { .. } => {
                    ". Connect by a name that the server's certificate contains"
                }
                Cause::Expired
                | Cause::ExpiredContext { .. }
                | Cause::NotValidYet
                | Cause::NotValidYetContext { .. } => {
                    ". Renew the server's certificate, or correct the clock of this machine"
                }
                Cause::UnknownIssuer => {
                    ". Name the certificate authority of the server with sslrootcert=/path in the URL"
                }
                _ => ". Check the server's certificate",
            });
        }
        source = cause.source();
    }
    None
}

#[cfg(not(feature = "tls"))]
pub(crate) fn advice(_error: &tokio_postgres::Error) -> Option<&'static str> {
    None
}
