//! Chooses the network interface for ranks on several hosts.
//!
//! By default NCCL takes the first interface that fits, which other hosts may not reach. The address of a host in the option
//! `hosts` names an interface that they reach.
//!
//! Source: NCCL user guide, `NCCL_SOCKET_IFNAME`; getifaddrs(3).
#![expect(unsafe_code, reason = "the system's list of interfaces is C's, and so is the environment")]

use std::{
    ffi::CStr,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs},
    ptr,
};

/// What the library reads the interface from.
const VARIABLE: &str = "NCCL_SOCKET_IFNAME";

/// Has this process and those that it starts use the interface with a host's address, unless the environment names one already.
///
/// # Safety
///
/// No other thread reads or writes the environment: the process has none yet.
pub unsafe fn use_interface_of(host: &str) {
    if std::env::var_os(VARIABLE).is_some() {
        return;
    }
    match interface_of(host) {
        // With this sign it is that name, and not all that begin so.
        // SAFETY: what the caller says.
        Some(name) => unsafe { std::env::set_var(VARIABLE, format!("={name}")) },
        None => {
            eprintln!(
                "pystachio-engine: no network interface has the address of host {host}: {VARIABLE} is not set"
            );
        }
    }
}

/// The interface with the address of a host, as named in the option `hosts`.
fn interface_of(host: &str) -> Option<String> {
    let wanted: Vec<IpAddr> = host.to_socket_addrs().ok()?.map(|address| address.ip()).collect();
    let interfaces = interfaces();
    wanted.iter().find_map(|wanted| {
        // That of this host itself has many, of which it names one.
        let is_it = |address: &IpAddr| address == wanted || (address.is_loopback() && wanted.is_loopback());
        let (name, _) = interfaces.iter().find(|(_, address)| is_it(address))?;
        Some(name.clone())
    })
}

/// Names and addresses of this host's interfaces.
fn interfaces() -> Vec<(String, IpAddr)> {
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: the pointer is to a live value.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: a list that the system has made, alive until it is freed below.
    while let Some(interface) = unsafe { next.as_ref() } {
        // SAFETY: an entry's name ends with a zero; its address is there or null, and as long as its family says.
        let (name, address) = unsafe { (CStr::from_ptr(interface.ifa_name), address_of(interface.ifa_addr)) };
        if let Some(address) = address {
            found.push((name.to_string_lossy().into_owned(), address));
        }
        next = interface.ifa_next;
    }
    // SAFETY: what was made above, once.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// # Safety
///
/// The address is null or one of its family.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: what the caller says.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: an address of this family.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_with_a_hosts_address_is_found() {
        let own = interfaces().into_iter().find(|(_, address)| *address == IpAddr::V4(Ipv4Addr::LOCALHOST));
        let (name, _) = own.unwrap();
        assert_eq!(interface_of("127.0.0.1:5440"), Some(name.clone()));
        assert_eq!(interface_of("127.0.0.7:5440"), Some(name));
        // Kept for documents: no host has it.
        assert_eq!(interface_of("192.0.2.1:5440"), None);
        assert_eq!(interface_of("no such host:1"), None);
    }
}
