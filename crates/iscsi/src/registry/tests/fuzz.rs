use proptest::prelude::*;

use super::*;

/// A pair that has a meaning, or one that has none.
fn pair() -> impl Strategy<Value = String> {
    let known = [
        "InitiatorName=iqn.2026-01.org.example:host",
        "InitiatorName=iqn.2026-01.org.example:other",
        "TargetName=iqn.2026-01.io.weft:disks",
        "SessionType=Discovery",
        "SessionType=Normal",
        "AuthMethod=None",
        "AuthMethod=CHAP,None",
        "CHAP_A=7",
        "CHAP_N=host|CHAP_R=0x289e2c9071589d2ee5cf56fcbf3a0314691da172ba326e3f5fd7f2ef09bbf234",
        "MaxConnections=2",
        "HeaderDigest=CRC32C",
        "MaxRecvDataSegmentLength=65536",
        "FirstBurstLength=1000000",
    ];
    prop_oneof![
        8 => proptest::sample::select(known.to_vec()).prop_map(str::to_owned),
        1 => "[A-Za-z]{1,8}=[ -{]{0,12}",
    ]
}

#[derive(Clone, Debug)]
enum Event {
    /// A request on one of four connections.
    Request {
        connection: u64,
        flags: u8,
        tsih: u16,
        cid: u16,
        text: String,
    },
    Closed(u64),
    Replace(bool),
    Remove,
}

fn event() -> impl Strategy<Value = Event> {
    let flags = prop_oneof![
        4 => Just(0x87u8),
        2 => Just(0x81),
        2 => Just(0x00),
        1 => any::<u8>(),
    ];
    let names = Just(
        "InitiatorName=iqn.2026-01.org.example:host|TargetName=iqn.2026-01.io.weft:disks"
            .to_owned(),
    );
    let text = prop_oneof![
        1 => names,
        1 => proptest::collection::vec(pair(), 0..5).prop_map(|pairs| pairs.join("|")),
    ];
    let request = (0u64..4, flags, 0u16..3, 0u16..3, text).prop_map(
        |(connection, flags, tsih, cid, text)| Event::Request {
            connection,
            flags,
            tsih,
            cid,
            text,
        },
    );
    prop_oneof![
        12 => request,
        3 => (0u64..4).prop_map(Event::Closed),
        1 => any::<bool>().prop_map(Event::Replace),
        1 => Just(Event::Remove),
    ]
}

/// What must hold after every event.
fn check(registry: &Registry) {
    let mut connections = 0;
    for session in registry.sessions() {
        assert!(!session.connections.is_empty());
        assert!(session.tsih != 0 && registry.tsihs[&session.tsih] == session.id);
        let connections_max = usize::from(session.negotiated.max_connections);
        assert!(session.connections.len() <= connections_max);
        for via in session.connections.values() {
            assert_eq!(registry.connections[&via.connection], session.id);
            connections += 1;
        }
        let known = session
            .nexus()
            .and_then(|nexus| registry.nexuses.get(&nexus));
        let is_found = known == Some(&session.id);
        assert_eq!(is_found, !session.has_ended && session.target.is_some());
    }
    assert_eq!(connections, registry.connections.len());
    assert_eq!(registry.tsihs.len(), registry.sessions.len());
    let found = registry
        .nexuses
        .values()
        .filter(|id| registry.sessions.contains_key(id));
    assert_eq!(found.count(), registry.nexuses.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_logins_and_changes_leave_the_registry_consistent(
        events in proptest::collection::vec(event(), 1..60),
    ) {
        let with = |is_guarded: bool| Target {
            auth: if is_guarded { super::chap::auth() } else { Auth::default() },
            ..target()
        };
        let mut registry = registry(vec![with(false)]);
        let mut initiators: BTreeMap<u64, Initiator> = BTreeMap::new();
        let mut name = 0;
        for event in events {
            match event {
                Event::Request { connection, flags, tsih, cid, text } => {
                    let initiator = initiators.entry(connection).or_insert_with(|| {
                        name += 1;
                        Initiator::new(name).with(tsih, cid)
                    });
                    initiator.request.flags = flags;
                    let step = LoginStep {
                        request: initiator.request,
                        text: text_of(&text),
                        carrier: crate::Carrier::Tcp,
                    };
                    let outcome =
                        registry.login(&mut initiator.state, &step, &initiator.via, &mut counting());
                    prop_assert!(outcome.answer.text.len() <= crate::LOGIN_ANSWER_MAX);
                    let ok = outcome.answer.status() == LoginStatus::Success;
                    prop_assert_eq!(ok, !matches!(outcome.then, AfterLogin::Close(_)));
                    for closing in outcome.change.closing {
                        registry.closed(closing);
                        initiators.retain(|_, initiator| initiator.via.connection != closing);
                    }
                    if !matches!(outcome.then, AfterLogin::Continue) && !matches!(outcome.then, AfterLogin::FullFeature(_)) {
                        let gone = initiators.remove(&connection).expect("just used");
                        registry.closed(gone.via.connection);
                    } else if let AfterLogin::FullFeature(joined) = outcome.then {
                        // A connection that is logged in makes no further login.
                        let entered = initiators.remove(&connection).expect("just used");
                        let session = registry.session(joined.session).expect("joined");
                        prop_assert_eq!(session.connections[&joined.cid].connection, entered.via.connection);
                        initiators.insert(connection + 100 * name, entered);
                    }
                }
                Event::Closed(connection) => {
                    let key = initiators.keys().copied().nth(connection as usize);
                    if let Some(gone) = key.and_then(|key| initiators.remove(&key)) {
                        registry.closed(gone.via.connection);
                    }
                }
                Event::Replace(is_guarded) => {
                    let change = registry.replace_target(Arc::new(with(is_guarded)));
                    for closing in change.closing {
                        registry.closed(closing);
                    }
                }
                Event::Remove => {
                    let _ = registry.remove_target(TARGET);
                }
            }
            check(&registry);
        }
    }
}
