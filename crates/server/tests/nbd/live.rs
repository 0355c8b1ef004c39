//! Exports that come, go and change while clients have them.

use needs::each_driver;
use reactor::Choice;
use server::{Change, ChangeError, NbdClientName, NbdExportSpec};
use wire::nbd::{nbd_error, option_reply as reply, request_type as request};

use crate::client::{Client, Form, Outcome};
use crate::content::{pattern, until};
use crate::disks::{BLOCK, NQN};
use crate::running::stop;
use crate::{config, export, portal, with_target};

#[each_driver]
fn clients_see_only_the_exports_of_their_network(backend: Choice) {
    let mut config = config(backend);
    let elsewhere = "192.0.2.0/24".parse().expect("a network");
    config.nbd_exports[0].clients = Some(vec![NbdClientName::Network(elsewhere)]);
    let running = server::start(config).expect("starts");
    let mut client = Client::greeted(portal(&running), Form::Simple);
    assert_eq!(client.list(), ["other"]);
    assert_eq!(client.go("ram"), reply::ERR_UNKNOWN);
    assert_eq!(client.go("nothing"), reply::ERR_UNKNOWN);
    // The only one is that without a name.
    assert_eq!(client.go(""), reply::ACK);
    stop(running);
}

#[each_driver]
fn export_that_is_removed_takes_its_clients_and_leaves_its_volume(backend: Choice) {
    with_target(backend, |running| {
        let mut gone = Client::open(portal(running), Form::Structured, "ram");
        let mut stays = Client::open(portal(running), Form::Structured, "other");
        let data = pattern(1, BLOCK);
        assert_eq!(gone.write(0, 0, &data), Outcome::Done(vec![]));
        let used = running.change(Change::RemoveVolume { name: "ram".into() });
        assert!(matches!(used, Err(ChangeError::InUse(..))), "{used:?}");
        let remove = || Change::RemoveNbdExport { name: "ram".into() };
        running.change(remove()).expect("it is there");
        let read = gone.request(request::READ, 0, 0, BLOCK as u64);
        let is_over = [Outcome::Gone, Outcome::Failed(nbd_error::ESHUTDOWN)].contains(&read);
        assert!(is_over, "{read:?}");
        assert_eq!(stays.write(0, 0, &data), Outcome::Done(vec![]));
        assert!(matches!(
            running.change(remove()),
            Err(ChangeError::Unknown(..))
        ));
        running
            .change(Change::AddNbdExport(NbdExportSpec {
                name: "again".into(),
                ..export("ram")
            }))
            .expect("it is free");
        let remove = Change::RemoveSubsystem { nqn: NQN.into() };
        running.change(remove).expect("it is there");
        let used = running.change(Change::RemoveVolume { name: "ram".into() });
        let told = used.expect_err("it is exported").to_string();
        assert!(told.contains("the NBD export \"again\""), "{told}");
        let mut again = Client::open(portal(running), Form::Structured, "again");
        let read = again.request(request::READ, 0, 0, BLOCK as u64);
        assert_eq!(read, Outcome::Done(data));
    });
}

#[each_driver]
fn export_that_may_be_written_no_more_says_so_to_its_clients(backend: Choice) {
    with_target(backend, |running| {
        let mut client = Client::open(portal(running), Form::Simple, "ram");
        let data = pattern(1, BLOCK);
        assert_eq!(client.write(0, 0, &data), Outcome::Done(vec![]));
        let read_only = NbdExportSpec {
            is_read_only: true,
            ..export("ram")
        };
        let set = Change::SetNbdExport(read_only);
        running.change(set).expect("it is there");
        let refused = client.write(0, 0, &pattern(2, BLOCK));
        assert_eq!(refused, Outcome::Failed(nbd_error::EPERM));
        let read = client.request(request::READ, 0, 0, BLOCK as u64);
        assert_eq!(read, Outcome::Done(data));
        let elsewhere = "192.0.2.0/24".parse().expect("a network");
        let set = Change::SetNbdExport(NbdExportSpec {
            clients: Some(vec![NbdClientName::Network(elsewhere)]),
            ..export("ram")
        });
        running.change(set).expect("it is there");
        assert_eq!(client.request(request::FLUSH, 0, 0, 0), Outcome::Gone);
    });
}

#[each_driver]
fn volume_that_is_resized_ends_where_it_ends_now(backend: Choice) {
    with_target(backend, |running| {
        let mut client = Client::open(portal(running), Form::Simple, "other");
        let end = 64 * BLOCK as u64;
        let data = pattern(1, BLOCK);
        let resize = |size_bytes| {
            let change = Change::ResizeVolume {
                name: "other".into(),
                size_bytes,
                allow_shrink: true,
            };
            running.change(change).expect("memory");
        };
        assert_eq!(
            client.write(0, end, &data),
            Outcome::Failed(nbd_error::ENOSPC)
        );
        resize(2 * end);
        assert_eq!(client.write(0, end, &data), Outcome::Done(vec![]));
        resize(end);
        assert_eq!(
            client.write(0, end, &data),
            Outcome::Failed(nbd_error::ENOSPC)
        );
        let read = client.request(request::READ, 0, end, BLOCK as u64);
        assert_eq!(read, Outcome::Failed(nbd_error::EINVAL));
    });
}

#[each_driver]
fn drained_target_lets_no_client_in_and_keeps_those_that_are_here(backend: Choice) {
    with_target(backend, |running| {
        let mut client = Client::open(portal(running), Form::Simple, "ram");
        running.change(Change::SetDrained(true)).expect("it is not");
        let mut late = Client::greeted(portal(running), Form::Simple);
        assert_eq!(late.go("ram"), reply::ERR_UNKNOWN);
        let told = running.refusals();
        assert_eq!(told[0].target.as_deref(), Some("ram"), "{told:?}");
        assert!(told[0].reason.contains("weft is drained"), "{told:?}");
        assert_eq!(
            client.write(0, 0, &pattern(1, BLOCK)),
            Outcome::Done(vec![])
        );
        running.change(Change::SetDrained(false)).expect("it is");
        assert_eq!(late.go("ram"), reply::ACK);
    });
}

#[each_driver]
fn client_that_chooses_no_export_in_time_is_refused_and_one_that_has_one_stays(backend: Choice) {
    let mut config = config(backend);
    config.limits.handshake_timeout_ms = 300;
    let running = server::start(config).expect("starts");
    let mut client = Client::open(portal(&running), Form::Simple, "ram");
    let mut silent = Client::greeted(portal(&running), Form::Simple);
    assert_eq!(silent.receive(0), Outcome::Gone);
    let told = running.refusals();
    let [refusal] = &told[..] else {
        panic!("{told:?}");
    };
    let words = "no export was chosen in time";
    assert!(refusal.reason.contains(words), "{told:?}");
    let flush = client.request(request::FLUSH, 0, 0, 0);
    assert_eq!(flush, Outcome::Done(vec![]));
    stop(running);
}

#[each_driver]
fn connections_and_volumes_are_counted(backend: Choice) {
    with_target(backend, |running| {
        let mut client = Client::open(portal(running), Form::Simple, "ram");
        assert_eq!(
            client.write(0, 0, &pattern(1, BLOCK)),
            Outcome::Done(vec![])
        );
        let listed = running.connections(|_| true).list;
        let [info] = &listed[..] else {
            panic!("{listed:?}");
        };
        assert_eq!(info.target.as_deref(), Some("ram"));
        assert_eq!(info.base.ios, 1);
        let metrics = running.metrics();
        let open = metrics.connections.iter().find(|(name, _)| *name == "nbd");
        assert_eq!(open, Some(&("nbd", 1)));
        let evict = Change::EvictConnections(vec![info.base.connection]);
        running.change(evict).expect("it is there");
        assert_eq!(client.request(request::FLUSH, 0, 0, 0), Outcome::Gone);
        until("it is counted no more", || {
            let open = running.metrics().connections;
            open.contains(&("nbd", 0))
        });
    });
}

#[each_driver]
fn target_that_stops_ends_connections_in_the_handshake_and_after_it(backend: Choice) {
    let running = server::start(config(backend)).expect("starts");
    let mut served = Client::open(portal(&running), Form::Structured, "ram");
    let mut stranger = Client::greeted(portal(&running), Form::Simple);
    assert_eq!(stranger.list().len(), 2);
    stop(running);
    let end = served.request(request::FLUSH, 0, 0, 0);
    let is_over = [Outcome::Gone, Outcome::Failed(nbd_error::ESHUTDOWN)].contains(&end);
    assert!(is_over, "{end:?}");
}
