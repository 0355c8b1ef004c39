use std::net::SocketAddr;

use store::fs::{Memory, Time};

use super::*;
use crate::NfsdSettings;
use crate::exports::{Clients, Export, NamedHost, Rule};
use crate::peer::Peer;

/// What a name service says: addresses of hosts, names of addresses, members of netgroups.
#[derive(Default)]
struct Said {
    hosts: Vec<(&'static str, Vec<IpAddr>)>,
    names: Vec<(IpAddr, Vec<&'static str>)>,
    groups: Vec<(&'static str, Vec<&'static str>)>,
}

impl NameService for Said {
    fn addresses(&self, host: &str) -> Option<Vec<IpAddr>> {
        let found = self.hosts.iter().find(|(name, _)| *name == host)?;
        Some(found.1.clone())
    }

    fn names(&self, address: IpAddr) -> Option<Vec<String>> {
        let found = self.names.iter().find(|(of, _)| *of == address)?;
        Some(found.1.iter().map(|name| (*name).to_owned()).collect())
    }

    fn members(&self, netgroup: &str) -> Option<Vec<String>> {
        let found = self.groups.iter().find(|(name, _)| *name == netgroup)?;
        Some(found.1.iter().map(|name| (*name).to_owned()).collect())
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect(text)
}

/// A server that exports to the clients of each of these names.
fn nfsd(names: Vec<ClientName>) -> Nfsd {
    Nfsd::new(NfsdSettings::default(), 1, [], exports(names), 0)
}

fn exports(names: Vec<ClientName>) -> Exports {
    let time = Time::default();
    let fs = Arc::new(Memory::new("m", 1 << 20, 1, time).expect("memory"));
    let exports = names.into_iter().enumerate().map(|(at, name)| {
        let rule = Rule {
            clients: Clients::Named(vec![name]),
            ..Rule::default()
        };
        Export::new(&format!("/{at}"), fs.clone(), vec![rule]).expect("an export")
    });
    Exports::new(exports.collect(), time).expect("exports")
}

fn peer(nfsd: &Nfsd, from: &str) -> Peer {
    Peer::new(nfsd, 1, SocketAddr::new(address(from), 700))
}

/// Whether a client sees the exports by now, once its address is looked up if it has to be.
fn sees(nfsd: &Nfsd, peer: &mut Peer, service: &Said, now: Nanos) -> Vec<bool> {
    peer.on_exports(nfsd);
    if let Some(address) = peer.find_names(nfsd, (now, now)) {
        nfsd.look_up_names(address, service, (now, &|| now));
        assert_eq!(peer.find_names(nfsd, (now, now)), None, "it is known then");
    }
    let exports: Vec<u32> = peer.view.exports().iter().map(Export::id).collect();
    let granted = exports
        .into_iter()
        .map(|id| peer.view.granted(id).is_some());
    granted.collect()
}

#[test]
fn client_is_let_in_by_a_pattern_only_where_its_name_leads_back_to_its_address() {
    let (web, evil) = (address("192.0.2.1"), address("192.0.2.66"));
    let pattern = ClientName::Pattern("*.example.org".to_owned());
    let nfsd = nfsd(vec![pattern]);
    let service = Said {
        hosts: vec![("web.example.org", vec![web])],
        names: vec![
            (web, vec!["web.example.org"]),
            (evil, vec!["web.example.org", "evil.example.org"]),
        ],
        ..Said::default()
    };
    let mut good = peer(&nfsd, "192.0.2.1");
    assert!(!good.has_exports(), "nothing is known yet");
    assert_eq!(sees(&nfsd, &mut good, &service, 0), [true]);
    for from in ["192.0.2.66", "192.0.2.2"] {
        let mut other = peer(&nfsd, from);
        assert_eq!(sees(&nfsd, &mut other, &service, 0), [false], "{from}");
    }
}

#[test]
fn first_names_of_an_address_count_and_no_more() {
    let from = address("192.0.2.1");
    let names = ["a.test", "b.test", "c.test", "d.test", "e.test"];
    let sees_by = |last: &'static str| {
        let nfsd = nfsd(vec![ClientName::Pattern(last.to_owned())]);
        let service = Said {
            hosts: names.map(|name| (name, vec![from])).into(),
            names: vec![(from, names.into())],
            ..Said::default()
        };
        sees(&nfsd, &mut peer(&nfsd, "192.0.2.1"), &service, 0)
    };
    assert_eq!(sees_by(names[NAMES_MAX - 1]), [true]);
    assert_eq!(sees_by(names[NAMES_MAX]), [false]);
}

#[test]
fn netgroup_holds_hosts_by_name_short_name_and_address() {
    let [one, two, three] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(address);
    let groups = ["named", "short", "numbers", "all", "none", "unknown"];
    let mapped = "::ffff:192.0.2.3";
    let names = groups.map(|name| ClientName::Netgroup(name.to_owned()));
    let nfsd = nfsd(names.into());
    let service = Said {
        hosts: vec![
            ("one.example.org", vec![one]),
            ("two.example.org", vec![two, one]),
        ],
        names: vec![
            (one, vec!["one.example.org"]),
            (two, vec!["two.example.org"]),
        ],
        groups: vec![
            ("named", vec!["x", "One.Example.Org."]),
            ("short", vec!["two"]),
            ("numbers", vec![mapped]),
            ("all", vec![""]),
            ("none", vec!["."]),
        ],
    };
    for (from, known) in [
        (one, [true, false, false, true, false, false]),
        (two, [false, true, false, true, false, false]),
        (three, [false, false, true, true, false, false]),
    ] {
        let mut peer = peer(&nfsd, &from.to_string());
        assert_eq!(sees(&nfsd, &mut peer, &service, 0), known, "{from}");
    }
}

#[test]
fn names_count_for_their_time_and_without_an_answer_those_of_before_for_a_while() {
    let web = address("192.0.2.1");
    let nfsd = nfsd(vec![
        ClientName::Pattern("*.example.org".to_owned()),
        ClientName::Netgroup("staff".to_owned()),
    ]);
    let service = |name| Said {
        hosts: vec![(name, vec![web])],
        names: vec![(web, vec![name])],
        groups: vec![("staff", vec!["web"])],
    };
    let mut client = peer(&nfsd, "192.0.2.1");
    let mut see = |service: &Said, now| sees(&nfsd, &mut client, service, now);
    let (before, after) = (service("web.example.org"), service("web.example.net"));
    assert_eq!(see(&before, 0), [true, true]);
    assert_eq!(see(&after, FRESH - 1), [true, true]);
    assert_eq!(see(&after, FRESH), [false, true]);
    let told = 2 * FRESH;
    assert_eq!(see(&before, told), [true, true]);
    let silent = Said::default();
    assert_eq!(see(&silent, told + FRESH), [true, true]);
    assert_eq!(see(&silent, told + HELD - RETRY), [true, true]);
    assert_eq!(see(&silent, told + HELD), [false, false]);
    let left = Said {
        groups: vec![("staff", vec![])],
        ..service("web.example.org")
    };
    assert_eq!(see(&left, told + HELD + RETRY), [true, false]);
}

#[test]
fn name_and_netgroup_without_an_answer_count_for_a_while_and_are_asked_for_again_soon() {
    let web = address("192.0.2.1");
    let server = || {
        nfsd(vec![
            ClientName::Pattern("web.*".to_owned()),
            ClientName::Netgroup("numbers".to_owned()),
        ])
    };
    let whole = || Said {
        hosts: vec![("web.example.org", vec![web])],
        names: vec![(web, vec!["web.example.org"])],
        groups: vec![("numbers", vec!["192.0.2.1"])],
    };
    let nameless = Said {
        hosts: Vec::new(),
        ..whole()
    };
    let groupless = Said {
        groups: Vec::new(),
        ..whole()
    };
    for (service, lost) in [(&nameless, [false, true]), (&groupless, [true, false])] {
        let nfsd = server();
        let mut client = peer(&nfsd, "192.0.2.1");
        let mut see = |service: &Said, now| sees(&nfsd, &mut client, service, now);
        assert_eq!(see(service, 0), lost, "it was never told");
        assert_eq!(see(&whole(), RETRY), [true, true]);
        for since in [FRESH, HELD - 1] {
            assert_eq!(see(service, RETRY + since), [true, true]);
        }
        assert_eq!(see(service, 2 * RETRY + HELD - 1), lost);
        assert_eq!(see(&whole(), 3 * RETRY + HELD - 1), [true, true]);
    }
}

#[test]
fn name_service_that_is_slow_to_fail_answers_calls_that_wait_and_those_of_a_while_after() {
    let nfsd = nfsd(vec![ClientName::Pattern("*.example.org".to_owned())]);
    let time = std::cell::Cell::new(0);
    let clock = || time.replace(time.get() + 2 * RETRY);
    nfsd.look_up_names(address("192.0.2.1"), &Said::default(), (0, &clock));
    let at = 2 * RETRY;
    let find = |since, now| peer(&nfsd, "192.0.2.1").find_names(&nfsd, (since, now));
    assert_eq!(find(0, 9 * RETRY), None, "it has waited since before");
    assert_eq!(find(at + RETRY - 1, at + RETRY - 1), None);
    assert_eq!(find(at + RETRY, at + RETRY), Some(address("192.0.2.1")));
}

#[test]
fn names_that_are_known_stay_while_exports_change_in_all_but_netgroups() {
    let group = |name: &str| ClientName::Netgroup(name.to_owned());
    let nfsd = nfsd(vec![group("a"), group("b")]);
    let mut client = peer(&nfsd, "192.0.2.1");
    sees(&nfsd, &mut client, &Said::default(), 0);
    let pattern = ClientName::Pattern("*.example.org".to_owned());
    for (names, asked) in [
        (vec![pattern, group("b"), group("a"), group("b")], None),
        (vec![group("a"), group("c")], Some(client.address.ip())),
    ] {
        nfsd.set_exports(exports(names));
        client.on_exports(&nfsd);
        assert_eq!(client.find_names(&nfsd, (1, 1)), asked);
    }
}

#[test]
fn host_is_looked_up_again_and_without_an_answer_keeps_its_addresses() {
    let [old, new] = ["192.0.2.1", "192.0.2.2"].map(address);
    let host = NamedHost::new("web.example.org", vec![old]);
    let nfsd = nfsd(vec![ClientName::Host(Arc::new(host))]);
    let service = |addresses| Said {
        hosts: vec![("web.example.org", addresses)],
        ..Said::default()
    };
    let [mut at_old, mut at_new] = ["192.0.2.1", "192.0.2.2"].map(|from| peer(&nfsd, from));
    let mut see = || {
        let of = |peer: &mut Peer| sees(&nfsd, peer, &Said::default(), 0)[0];
        (of(&mut at_old), of(&mut at_new))
    };
    let [named] = &nfsd.named_hosts()[..] else {
        panic!("one host is named");
    };
    assert_eq!(see(), (true, false));
    assert!(!nfsd.look_up_host(named, &service(vec![old])));
    assert!(!nfsd.look_up_host(named, &Said::default()));
    assert_eq!(see(), (true, false));
    assert!(nfsd.look_up_host(named, &service(vec![new, old])));
    assert!(
        !nfsd.look_up_host(named, &service(vec![old, new])),
        "in any order"
    );
    assert_eq!(see(), (true, true));
    assert!(nfsd.look_up_host(named, &service(vec![new])));
    assert_eq!(see(), (false, true));
}

#[test]
fn addresses_that_are_known_have_a_bound_and_those_that_count_longest_stay() {
    let nfsd = nfsd(vec![ClientName::Pattern("*.example.org".to_owned())]);
    let web = address("192.0.2.1");
    let named = Said {
        hosts: vec![("web.example.org", vec![web])],
        names: vec![(web, vec!["web.example.org"])],
        ..Said::default()
    };
    nfsd.look_up_names(web, &named, (0, &|| 0));
    for number in 0..KNOWN_MAX as u32 + 100 {
        let address = IpAddr::from(number.to_be_bytes());
        nfsd.look_up_names(address, &Said::default(), (0, &|| 0));
        assert!(locked(&nfsd.client_names.known).len() <= KNOWN_MAX);
    }
    assert_eq!(peer(&nfsd, "192.0.2.1").find_names(&nfsd, (1, 1)), None);
}

#[test]
fn addresses_of_datagrams_have_a_bound_until_their_look_ups_have_ended() {
    let names = ClientNames::default();
    let ask_all = |from: u32| {
        for number in from..from + 2 * ASKED_MAX as u32 {
            names.ask(IpAddr::from(number.to_be_bytes()));
        }
        names.take_asked()
    };
    let asked = ask_all(0);
    assert_eq!(asked.len(), ASKED_MAX);
    assert!(ask_all(0).is_empty(), "they are under way");
    assert!(ask_all(10_000).is_empty());
    names.end_asked(asked[0]);
    names.ask(asked[1]);
    assert!(names.take_asked().is_empty(), "it is under way");
    assert_eq!(ask_all(10_000).len(), 1);
}
