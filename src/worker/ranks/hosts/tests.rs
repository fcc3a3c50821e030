//! Two hosts at one address, with certificates that the test makes. `rank_server.rs` tests the work
//! of a rank. The process of a rank is this test's executable here, which ends at once.

use std::{path::Path, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::{net::TcpListener, sync::mpsc};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use super::{
    service::{self, ToHost},
    *,
};
use crate::{options::TlsFiles, ranks::RankCommand};

const PATIENCE: Duration = Duration::from_secs(300);

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
}

/// Files of a host whose certificate is of one authority, and which believes another one.
fn tls_files(folder: &Path, name: &str, own: &Authority, believed: &Authority) -> TlsFiles {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, own).unwrap();
    let write = |kind: &str, text: String| {
        let path = folder.join(format!("{name}.{kind}"));
        std::fs::write(&path, text).unwrap();
        path
    };
    TlsFiles {
        certificate: write("certificate", certificate.pem()),
        key: write("key", key.serialize_pem()),
        authority: write("ca", believed.pem()),
    }
}

fn hosts(names: &[String], host: usize, ranks: usize, tls: TlsFiles) -> Hosts {
    Hosts::new(&HostOptions { hosts: names.to_vec(), host, tls }, ranks).unwrap()
}

/// A host that listens, and what the others need to reach it.
struct Listening {
    folder: tempfile::TempDir,
    names: Vec<String>,
    authority: Authority,
}

impl Listening {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let names = vec!["127.0.0.1:1".to_owned(), listener.local_addr().unwrap().to_string()];
        let authority = authority();
        let hosts = hosts(&names, 1, 1, tls_files(folder.path(), "listener", &authority, &authority));
        // The process is this program once more, which is told to list no test, and ends at once.
        let command =
            RankCommand { arguments: ["--list", "--exact", "no test"].map(Into::into).into(), hosts: None };
        let setup = ListenerSetup { hosts, command, spill_directory: folder.path().to_owned() };
        tokio::spawn(HostListener::new(setup).unwrap().serve_on(listener));
        Self { folder, names, authority }
    }

    /// Another host whose certificate is of this authority, which believes that one.
    fn other(&self, own: &Authority, believed: &Authority) -> Hosts {
        hosts(&self.names, 0, 1, tls_files(self.folder.path(), "other", own, believed))
    }
}

/// Whether a rank got a process on another host, and why it has ended.
async fn end_of(hosts: &Hosts) -> (bool, String) {
    let (rank, _socket) = HostRank::start(hosts, Rank(1)).unwrap();
    let ended = async {
        loop {
            match rank.end_reason() {
                Some(reason) => return (rank.pid().is_some(), reason),
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_gets_a_process_on_another_host_and_its_end_is_told() {
    let listening = Listening::start().await;
    let (has_started, reason) = end_of(&listening.other(&listening.authority, &listening.authority)).await;
    assert!(has_started && reason.starts_with("ended with status "), "{has_started} {reason}");
}

/// Whether the other host has refused a certificate. It closes the connection then with what it has not read, and its alert may be lost with that.
fn is_refused(reason: &str, alert: &str) -> bool {
    [alert, "connection closed", "broken pipe"].iter().any(|words| reason.contains(words))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_looked_at_by_both_sides() {
    let listening = Listening::start().await;
    let stranger = authority();
    for (hosts, is_wanted) in [
        (
            listening.other(&stranger, &listening.authority),
            (|reason| is_refused(reason, "received fatal alert")) as fn(&str) -> bool,
        ),
        (listening.other(&listening.authority, &stranger), |reason| {
            reason.contains("invalid peer certificate")
        }),
    ] {
        let (has_started, reason) = end_of(&hosts).await;
        assert!(!has_started && reason.starts_with("can't be reached: "), "{reason}");
        assert!(is_wanted(&reason) && reason.contains("tls_ca"), "{reason}");
    }
    // One that shows none.
    let authority = Certificate::from_pem(listening.authority.pem());
    let tls = ClientTlsConfig::new().ca_certificate(authority).domain_name("127.0.0.1");
    let endpoint = Endpoint::from_shared(format!("https://{}", listening.names[1])).unwrap();
    let channel = endpoint.tls_config(tls).unwrap().connect_lazy();
    let (_messages, unsent) = mpsc::channel::<ToHost>(1);
    let error = service::call(channel, unsent).await.unwrap_err();
    assert!(is_refused(&error, "CertificateRequired"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_definition_is_refused_and_named() {
    let listening = Listening::start().await;
    let tls = tls_files(listening.folder.path(), "other", &listening.authority, &listening.authority);
    let mut names = listening.names.clone();
    names.push("127.0.0.1:2".to_owned());
    let (has_started, reason) = end_of(&hosts(&names, 0, 1, tls)).await;
    assert!(!has_started && reason.contains("hosts name others: hosts=127.0.0.1:1,"), "{reason}");
}

#[test]
fn ranks_are_on_hosts_in_their_order_from_the_coordinator_on() {
    let folder = tempfile::tempdir().unwrap();
    let authority = authority();
    let names: Vec<String> = ["a:1", "b:1", "c:1"].map(str::to_owned).to_vec();
    let at = |host| hosts(&names, host, 2, tls_files(folder.path(), "a", &authority, &authority));
    let of_b: Vec<String> = (0..6).map(|rank| at(1).host_of(Rank(rank)).to_owned()).collect();
    assert_eq!(of_b, ["b:1", "b:1", "c:1", "c:1", "a:1", "a:1"]);
    for rank in 0..6 {
        let open = at(1).open(Rank(rank));
        let takers: Vec<usize> = (0..3).filter(|host| at(*host).check(&open).is_ok()).collect();
        assert_eq!(
            takers,
            match rank {
                0 | 1 => vec![],
                2 | 3 => vec![2],
                _ => vec![0],
            }
        );
    }
    let open = Open { version: "0.0.1".to_owned(), ..at(1).open(Rank(2)) };
    let error = at(2).check(&open).unwrap_err();
    assert!(error.starts_with("hosts are of different versions: version="), "{error}");
    assert!(error.contains("coordinator_version=0.0.1 (b:1)"), "{error}");
    let open = Open { protocol_version: PROTOCOL_VERSION + 1, ..at(1).open(Rank(2)) };
    assert!(at(2).check(&open).is_err());
    let open = Open { coordinator: "d:1".to_owned(), ..at(1).open(Rank(2)) };
    assert_eq!(at(2).check(&open).unwrap_err(), "host c:1 has no such rank: rank=2, coordinator=d:1");
}
