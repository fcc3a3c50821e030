//! The options of a server whose ranks are on several hosts.
//!
//! | option | value |
//! |---|---|
//! | `hosts` | address and port of each host, with commas; the same, in the same order, on all of them |
//! | `host` | which of them this one is: the only address that it listens on |
//! | `tls_certificate`, `tls_key`, `tls_ca` | files in the form PEM: this host's certificate, its key, and the authority of all hosts' certificates |
//!
//! Invariants: a server has all of these options, or none. Only superusers may set them, because
//! they name sockets and files of this host.
//!
//! Deliberately absent: checks of files and addresses. The engine checks them, and reports errors.
#![expect(unsafe_code, reason = "asks PostgreSQL who the user is")]

use std::path::Path;

use pgrx::pg_sys;
use pystachio_plan::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// Their names.
pub const HOST_OPTIONS: [&str; 5] = ["hosts", "host", "tls_certificate", "tls_key", "tls_ca"];

/// The hosts that share a server's queries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostOptions {
    /// Address and port of each.
    pub hosts: Vec<String>,
    /// This one's.
    pub host: String,
    /// This host's certificate.
    pub tls_certificate: String,
    /// The key of that.
    pub tls_key: String,
    /// The authority of all hosts' certificates.
    pub tls_ca: String,
}

/// The hosts that options name, if they name any.
///
/// # Errors
///
/// `InvalidArgument`, naming option, value and what is valid.
pub fn parse_host_options(
    options: &[(String, String)],
    ranks: u32,
    ranks_max: u32,
) -> Result<Option<HostOptions>> {
    let value = |name: &str| options.iter().find(|(known, _)| known == name).map(|(_, value)| value.trim());
    if HOST_OPTIONS.iter().all(|name| value(name).is_none()) {
        return Ok(None);
    }
    let required = |name: &str| {
        value(name).filter(|value| !value.is_empty()).ok_or_else(|| {
            invalid(format!("option \"{name}\" is missing: ranks on several hosts need it"))
                .with_hint(format!("Set all of {}, or none.", HOST_OPTIONS.join(", ")))
        })
    };
    let text = required("hosts")?;
    let hosts: Vec<String> = text.split(',').map(|host| host.trim().to_owned()).collect();
    let wrong = |value: &str, valid: &str| {
        invalid(format!("invalid value for option \"hosts\": \"{value}\""))
            .with_hint(format!("Valid: {valid}."))
    };
    if let Some(host) = hosts.iter().find(|host| !is_address(host)) {
        return Err(wrong(
            host,
            "addresses with ports and commas between them, such as 10.0.0.1:5440,10.0.0.2:5440",
        ));
    }
    if hosts.len() < 2 || hosts.iter().enumerate().any(|(place, host)| hosts[..place].contains(host)) {
        return Err(wrong(text, "two hosts or more, each named once"));
    }
    if hosts.len() as u32 * ranks > ranks_max {
        let message = format!("option \"hosts\" names {} hosts, and \"ranks\" is {ranks}", hosts.len());
        return Err(invalid(message).with_hint(format!("All hosts together have at most {ranks_max} ranks.")));
    }
    let host = required("host")?;
    if !hosts.iter().any(|name| name == host) {
        return Err(invalid(format!("invalid value for option \"host\": \"{host}\""))
            .with_hint(format!("Valid: the one of \"hosts\" that is this host: {}.", hosts.join(", "))));
    }
    let path = |name: &str| {
        let path = required(name)?;
        match Path::new(path).is_absolute() {
            true => Ok(path.to_owned()),
            false => Err(invalid(format!("invalid value for option \"{name}\": \"{path}\""))
                .with_hint("Valid: an absolute path, beginning with /.")),
        }
    };
    Ok(Some(HostOptions {
        host: host.to_owned(),
        hosts,
        tls_certificate: path("tls_certificate")?,
        tls_key: path("tls_key")?,
        tls_ca: path("tls_ca")?,
    }))
}

/// Raises an ERROR if the role may not name sockets and files of this host.
pub fn require_superuser(options: &[(String, String)]) {
    let named = options.iter().find(|(name, _)| HOST_OPTIONS.contains(&name.as_str()));
    let Some((name, _)) = named else { return };
    // SAFETY: a lookup of the session's user.
    if !unsafe { pg_sys::superuser() } {
        crate::error::raise(
            Error::new(ErrorKind::FilePermission, format!("permission denied to set option \"{name}\""))
                .with_detail("Only superusers may name sockets and certificates of this host.")
                .with_hint("Let a superuser set the options of this server."),
        );
    }
}

/// Whether this is a name or an address with a port.
fn is_address(host: &str) -> bool {
    let Some((name, port)) = host.rsplit_once(':') else { return false };
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let is_name = match inner {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !name.is_empty()
                && name.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-_".contains(letter))
        }
    };
    is_name && port.parse::<u16>().is_ok_and(|port| port > 0)
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
