//! The certificates of this host and the authority that it trusts. Both sides of a connection show a certificate.

use std::path::Path;

use pystachio_plan::{Error, ErrorKind, Result, system_reason};
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

use crate::options::TlsFiles;

/// This host's certificate with its key, and the authority that all hosts' certificates are of.
#[derive(Clone)]
pub(super) struct HostIdentity {
    identity: Identity,
    authority: Certificate,
}

impl HostIdentity {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// `FileAccess` for one that can't be read, `InvalidArgument` for one that has no such thing in it.
    pub(super) fn read(files: &TlsFiles) -> Result<Self> {
        let certificate = read_pem("tls_certificate", &files.certificate, "CERTIFICATE")?;
        let key = read_pem("tls_key", &files.key, "PRIVATE KEY")?;
        let authority = read_pem("tls_ca", &files.authority, "CERTIFICATE")?;
        Ok(Self {
            identity: Identity::from_pem(certificate, key),
            authority: Certificate::from_pem(authority),
        })
    }

    /// The configuration of the listening side, which refuses clients without a certificate.
    pub(super) fn server(&self) -> ServerTlsConfig {
        ServerTlsConfig::new().identity(self.identity.clone()).client_ca_root(self.authority.clone())
    }

    /// The configuration of the connecting side. The host's certificate must name the host.
    pub(super) fn client(&self, host_name: &str) -> ClientTlsConfig {
        ClientTlsConfig::new()
            .identity(self.identity.clone())
            .ca_certificate(self.authority.clone())
            .domain_name(host_name)
    }
}

fn read_pem(option: &str, path: &Path, what: &str) -> Result<Vec<u8>> {
    let named = format!("server option {option}: path={}", path.display());
    let text = std::fs::read(path).map_err(|error| {
        Error::new(ErrorKind::FileAccess, format!("{named}: can't be read: {}", system_reason(&error)))
            .with_hint("Name a file on this host that the database server's user may read.")
    })?;
    if !String::from_utf8_lossy(&text)
        .lines()
        .any(|line| line.starts_with("-----BEGIN") && line.contains(what))
    {
        return Err(Error::new(ErrorKind::InvalidArgument, format!("{named}: no {what} in it"))
            .with_hint("Give a file in PEM format."));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_not_there_or_hold_something_else_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pem");
        let error = read_pem("tls_key", &path, "PRIVATE KEY").unwrap_err();
        assert!(error.message.starts_with("server option tls_key: path=/"), "{error}");
        assert_eq!(error.kind, ErrorKind::FileAccess);
        std::fs::write(&path, "-----BEGIN CERTIFICATE-----\n").unwrap();
        let error = read_pem("tls_key", &path, "PRIVATE KEY").unwrap_err();
        assert!(error.message.ends_with("a.pem: no PRIVATE KEY in it"), "{error}");
        assert!(read_pem("tls_ca", &path, "CERTIFICATE").is_ok());
    }
}
