//! Which changes cut a host, an initiator or a client, or lose what is in memory.

use auth::Network;
use iscsi::{InitiatorAcl, PortalGroup, Target};
use nvmf::command::AnaState;
use nvmf::{AnaGroup, HostTerms};
use server::nfs::ExportSpec;
use server::{Change, NamespaceSpec, NbdClientName, NbdExportSpec, SubsystemSpec};

use crate::by_name::ByName;

/// Whether a change disturbs: `undo` has what holds before it. What cannot be told apart
/// does.
///
/// `places` are those of the running listeners in the desired document, as `change` names
/// them.
pub(crate) fn disturbs(change: &Change, undo: Option<&Change>, places: &[Option<u16>]) -> bool {
    match change {
        Change::AddVolume(_)
        | Change::SetMirror { .. }
        | Change::SetScrubRate { .. }
        // Its connections stay.
        | Change::SetRemote { .. }
        | Change::AddSubsystem(_)
        | Change::AddNamespace { .. }
        | Change::AllowHost { .. }
        | Change::AddListener(_)
        | Change::AddTarget(_)
        | Change::AddLun { .. }
        | Change::AddFileSystem(_)
        | Change::AddExport(_)
        | Change::AddNbdExport(_)
        | Change::SetReferrals(_)
        | Change::SetPskCompat(_)
        | Change::SetEncryption { .. }
        | Change::SetSnapshotSchedules(_)
        // Connections keep what they have.
        | Change::SetConnectionPolicies(_)
        // They wait, and go on.
        | Change::SetRateLimits(_)
        // What is there stays.
        | Change::SetQuotas(_)
        // What was proved by other keys holds on.
        | Change::SetKerberos(Some(_))
        // Who has asked which targets there are has its answer.
        | Change::SetDiscoveryAuth(_) => false,
        Change::RemoveListener { .. }
        | Change::RemoveSubsystem { .. }
        | Change::RemoveNamespace { .. }
        | Change::RemoveTarget { .. }
        | Change::RemoveLun { .. }
        | Change::RemoveExport { .. }
        | Change::RemoveNbdExport { .. }
        | Change::SetKerberos(None)
        | Change::EvictConnections(_)
        | Change::ForgetGeneratedKeys { .. }
        | Change::EvictClient { .. }
        | Change::SetDrained(_) => true,
        // No plan has them: what holds before them is not known.
        Change::DenyHost { .. }
        | Change::SetHosts { .. }
        | Change::SetInitiators { .. }
        | Change::SetAuth { .. }
        | Change::SetAna { .. } => true,
        // Nothing brings back what was in memory.
        Change::RemoveVolume { .. } | Change::RemoveFileSystem { .. } => undo.is_none(),
        Change::ResizeVolume { allow_shrink, .. } => *allow_shrink,
        Change::SetSubsystem { spec: new, .. } => match undo {
            Some(Change::SetSubsystem { spec: old, .. }) => narrows(old, new, places),
            _ => true,
        },
        Change::SetTarget(new) => match undo {
            Some(Change::SetTarget(old)) => cuts(old, new, places),
            _ => true,
        },
        Change::SetTargetAna { groups: new, .. } => match undo {
            Some(Change::SetTargetAna { groups: old, .. }) => closes(old, new, places),
            _ => true,
        },
        Change::SetExport(ExportSpec { rules: new, .. }) => match undo {
            Some(Change::SetExport(ExportSpec { rules: old, .. })) => {
                overrules(old, new, |added, known| added.clients.meets(&known.clients))
            }
            _ => true,
        },
        Change::SetNbdExport(new) => match undo {
            Some(Change::SetNbdExport(old)) => {
                (new.is_read_only && !old.is_read_only) || shuts_out(old, new)
            }
            _ => true,
        },
        Change::SetRedirect { redirect, .. } => redirect.is_some(),
    }
}

/// Whether a client may have an NBD export no more.
fn shuts_out(old: &NbdExportSpec, new: &NbdExportSpec) -> bool {
    let is_left = |name: &NbdClientName| {
        let clients = new.clients.as_ref();
        clients.is_none_or(|clients| clients.iter().any(|other| other.covers(name)))
    };
    match &old.clients {
        None => new.clients.is_some(),
        Some(names) => !names.iter().all(is_left),
    }
}

/// Whether a host of a subsystem loses it, a namespace or access to one.
fn narrows(old: &SubsystemSpec, new: &SubsystemSpec, places: &[Option<u16>]) -> bool {
    let reached = old.listeners.as_ref().map(|old| in_desired(old, places));
    let keeps = |old_namespace: &NamespaceSpec| {
        let mut namespaces = new.namespaces.iter();
        let namespace = namespaces.find(|new| new.nsid == old_namespace.nsid);
        namespace.is_some_and(|namespace| {
            let (from, to) = (old_namespace.ana_group, namespace.ana_group);
            !loses(old_namespace.hosts.as_deref(), namespace.hosts.as_deref())
                && !loses_access((&old.ana_groups, from), (&new.ana_groups, to), places)
        })
    };
    loses(old.hosts.as_deref(), new.hosts.as_deref())
        || hold_to_more(old, new)
        || loses(reached.as_deref(), new.listeners.as_deref())
        || closes(&old.ana_groups, &new.ana_groups, places)
        || !old.namespaces.iter().all(keeps)
}

/// Whether a host that is let in loses a network that it may come from, or has to speak TLS
/// from now on.
fn hold_to_more(old: &SubsystemSpec, new: &SubsystemSpec) -> bool {
    let [known, terms] = [&old.terms, &new.terms]
        .map(|all| ByName::new(all.iter().map(|terms| (terms.nqn.clone(), terms))));
    let named =
        |all: &[HostTerms]| -> Vec<String> { all.iter().map(|terms| terms.nqn.clone()).collect() };
    let hosts: Vec<String> = match &old.hosts {
        Some(hosts) => hosts.clone(),
        None => [named(&old.terms), named(&new.terms)].concat(),
    };
    hosts.iter().any(|host| {
        let of = |all: &ByName<&HostTerms>| {
            let found = all.find(host).or_else(|| all.find(HostTerms::ANY_HOST));
            found.map_or_else(|| HostTerms::new(&**host), |terms| (*terms).clone())
        };
        holds_to_more(&of(&known), &of(&terms))
    })
}

fn holds_to_more(known: &HostTerms, new: &HostTerms) -> bool {
    let is_kept = |one: &Network| new.networks.iter().any(|network| network.covers(one));
    let any_is_lost = || !known.networks.iter().all(is_kept);
    let loses_network = !new.networks.is_empty() && (known.networks.is_empty() || any_is_lost());
    loses_network || (new.needs_tls() && !known.needs_tls())
}

/// Whether a group gives no access any more by a listener that stays: a host may have no
/// other path.
fn closes(old: &[AnaGroup], new: &[AnaGroup], places: &[Option<u16>]) -> bool {
    // A group that is not named gives access.
    new.iter()
        .any(|group| loses_access((old, group.id), (new, group.id), places))
}

/// Whether a member of the first group that becomes one of the second is not accessible any
/// more by a listener that stays.
fn loses_access(
    (old, from): (&[AnaGroup], u32),
    (new, to): (&[AnaGroup], u32),
    places: &[Option<u16>],
) -> bool {
    let is_accessible = |groups: &[AnaGroup], id, at| {
        let group = groups.iter().find(|group| group.id == id);
        let state = group.map_or(AnaState::default(), |group| group.state_on(at));
        state.is_accessible()
    };
    let mut staying = (0..)
        .zip(places)
        .filter_map(|(at, place)| Some((at, (*place)?)));
    staying.any(|(at, place)| is_accessible(old, from, at) && !is_accessible(new, to, place))
}

/// Whether one of `old` is not in `new`; `None` has all.
fn loses<T: PartialEq>(old: Option<&[T]>, new: Option<&[T]>) -> bool {
    match (old, new) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(old), Some(new)) => old.iter().any(|one| !new.contains(one)),
    }
}

/// Places in the desired document; a listener that goes cuts by itself.
fn in_desired(listeners: &[u16], places: &[Option<u16>]) -> Vec<u16> {
    let places = listeners.iter().filter_map(|&at| places[usize::from(at)]);
    places.collect()
}

/// Whether a session with `old` may end. What holds for logins to come ends none.
fn cuts(old: &Target, new: &Target, places: &[Option<u16>]) -> bool {
    let stays = |group: &PortalGroup| {
        let mut groups = new.portal_groups.iter();
        let new = groups.find(|new| new.tag == group.tag);
        let portals = in_desired(&group.portals, places);
        new.is_some_and(|new| !loses(Some(&portals), Some(&new.portals)))
    };
    !old.portal_groups.iter().all(stays)
        || hides(old, new)
        || new.redirect.is_some() && old.redirect != new.redirect
}

/// Whether an initiator may be refused, or see less: one that fits an entry of `old` finds no
/// entry in `new`, or one that allows less.
fn hides(old: &Target, new: &Target) -> bool {
    old.acl.iter().enumerate().any(|(at, known)| {
        let allows = |entry: &InitiatorAcl| {
            let (proved, wanted) = (old.auth_of(known), new.auth_of(entry));
            let sees_all = match (&known.luns, &entry.luns) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(known), Some(luns)) => known.iter().all(|lun| luns.contains(lun)),
            };
            sees_all && (wanted.chap.is_none() || proved.chap == wanted.chap)
        };
        let mut taking = new
            .acl
            .iter()
            .filter(|entry| takes(entry, (&old.acl, at), &new.acl));
        !new.acl.iter().any(|entry| entry.covers(known)) || taking.any(|entry| !allows(entry))
    })
}

/// Whether an entry of `new` may hold for what fitted the entry `at` of `old`: of those that
/// fit, the first holds that has the name, else the first without one.
fn takes(entry: &InitiatorAcl, (old, at): (&[InitiatorAcl], usize), new: &[InitiatorAcl]) -> bool {
    let known = &old[at];
    let is_name = entry.name.is_none() || known.name.is_none() || entry.name == known.name;
    if !(is_name && entry.meets(known) && entry.shares_address(known)) {
        return false;
    }
    // What it fits held before, and goes on to do so, for them.
    let turn = |at: usize| (old[at].name.is_none(), at);
    let mut before = (0..old.len()).filter(|other| turn(*other) < turn(at));
    let is_old = before.any(|other| old[other] == *entry);
    let has_own = |other: &InitiatorAcl| other.name == known.name && other.covers(known);
    let is_behind = entry.name.is_none() && known.name.is_some() && new.iter().any(has_own);
    !is_old && !is_behind
}

/// Of lists whose first entry that fits holds: whether one of `old` goes, or one that is
/// added before it takes what fits it.
fn overrules<T: PartialEq>(old: &[T], new: &[T], takes: impl Fn(&T, &T) -> bool) -> bool {
    let mut left = old;
    for entry in new {
        match left.split_first() {
            Some((first, rest)) if first == entry => left = rest,
            _ if left.iter().any(|known| takes(entry, known)) => return true,
            _ => {}
        }
    }
    !left.is_empty()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    use auth::HostPsk;
    use auth::psk::{Psk, PskHash};
    use iscsi::{Auth, Redirect};
    use server::nfs::{Clients, ExportSpec, Exported, FileSystemKind, FileSystemSpec, Rule};
    use server::{IscsiTargetSpec, ListenerSpec, LunSpec};
    use store::{Kind, Spec};

    /// Two listeners, which stay.
    const STAYING: &[Option<u16>] = &[Some(0), Some(1)];

    fn is_disturbed(change: Change, undo: Change) -> bool {
        disturbs(&change, Some(&undo), STAYING)
    }

    fn subsystem(spec: SubsystemSpec) -> Change {
        Change::SetSubsystem {
            spec,
            sets_ana: true,
        }
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn rules(uids: &[u32]) -> Change {
        let rule = |&anon_uid| Rule {
            anon_uid,
            ..Rule::default()
        };
        Change::SetExport(ExportSpec {
            path: "/".to_owned(),
            what: Exported::FileSystem("m".to_owned()),
            rules: uids.iter().map(rule).collect(),
        })
    }

    fn ana(state: AnaState) -> Vec<AnaGroup> {
        let mut group = AnaGroup {
            id: 2,
            ..AnaGroup::default()
        };
        group.set_state(Some(1), state);
        vec![group]
    }

    fn target(edit: impl FnOnce(&mut Target)) -> Change {
        let mut target = Target::new("iqn.2026-01.io.weft:t");
        target.portal_groups = vec![PortalGroup {
            tag: 1,
            portals: vec![0, 1],
            ..PortalGroup::default()
        }];
        edit(&mut target);
        Change::SetTarget(target)
    }

    fn initiator(name: Option<&str>) -> InitiatorAcl {
        InitiatorAcl {
            name: name.map(str::to_owned),
            ..InitiatorAcl::default()
        }
    }

    #[test]
    fn change_that_adds_cuts_nothing() {
        let (name, nqn) = (|| "a".to_owned(), || "nqn.a".to_owned());
        for change in [
            Change::AddVolume(Spec::new("a", Kind::NULL, 1 << 20, 512)),
            Change::AddSubsystem(SubsystemSpec::default()),
            Change::AddNamespace {
                nqn: nqn(),
                namespace: NamespaceSpec::default(),
            },
            Change::AllowHost {
                nqn: nqn(),
                host: nqn(),
            },
            Change::AddListener(ListenerSpec::from(SocketAddr::from(([127, 0, 0, 1], 4420)))),
            Change::AddTarget(IscsiTargetSpec::new("iqn.a")),
            Change::AddLun {
                name: name(),
                lun: LunSpec::new(0, "a"),
            },
            Change::AddFileSystem(FileSystemSpec {
                name: name(),
                kind: FileSystemKind::Mem {
                    size_bytes: 1 << 20,
                },
            }),
            Change::AddExport(ExportSpec {
                path: "/".to_owned(),
                what: Exported::FileSystem(name()),
                rules: Vec::new(),
            }),
            Change::SetReferrals(Vec::new()),
            Change::SetDiscoveryAuth(Auth::default()),
        ] {
            assert!(!disturbs(&change, None, STAYING), "{change:?}");
        }
    }

    #[test]
    fn change_that_takes_from_hosts_cuts_them() {
        let (name, nqn) = (|| "a".to_owned(), || "nqn.a".to_owned());
        let address = SocketAddr::from(([127, 0, 0, 1], 4420));
        for change in [
            Change::RemoveListener { address },
            Change::RemoveSubsystem { nqn: nqn() },
            Change::RemoveNamespace {
                nqn: nqn(),
                nsid: 1,
            },
            Change::RemoveTarget { name: name() },
            Change::RemoveLun {
                name: name(),
                lun: 0,
            },
            Change::RemoveExport {
                path: "/".to_owned(),
            },
            Change::EvictConnections(Vec::new()),
            Change::EvictClient { id: 1 },
        ] {
            assert!(disturbs(&change, None, STAYING), "{change:?}");
        }
    }

    #[test]
    fn change_that_does_not_tell_what_holds_before_disturbs() {
        let (name, nqn) = (|| "a".to_owned(), || "nqn.a".to_owned());
        for change in [
            Change::DenyHost {
                nqn: nqn(),
                host: nqn(),
            },
            Change::SetHosts {
                nqn: nqn(),
                hosts: None,
            },
            Change::SetInitiators {
                name: name(),
                acl: Vec::new(),
            },
            Change::SetAuth {
                name: name(),
                auth: Auth::default(),
            },
            Change::SetAna {
                nqn: nqn(),
                listener: None,
                group: 1,
                state: AnaState::Optimized,
            },
            Change::SetTargetAna {
                name: name(),
                groups: Vec::new(),
            },
            subsystem(SubsystemSpec::default()),
            target(|_| ()),
            rules(&[]),
        ] {
            assert!(disturbs(&change, None, STAYING), "{change:?}");
        }
    }

    #[test]
    fn volume_and_file_system_disturb_where_what_is_in_them_is_lost() {
        let name = || "a".to_owned();
        let volume = Change::RemoveVolume { name: name() };
        let files = Change::RemoveFileSystem { name: name() };
        let back = Change::AddVolume(Spec::new("a", Kind::NULL, 1 << 20, 512));
        for change in [volume, files] {
            assert!(disturbs(&change, None, STAYING));
            assert!(!disturbs(&change, Some(&back), STAYING));
        }
        let resized = |allow_shrink| Change::ResizeVolume {
            name: name(),
            size_bytes: 512,
            allow_shrink,
        };
        assert!(!disturbs(&resized(false), None, STAYING));
        assert!(disturbs(&resized(true), None, STAYING));
    }

    #[test]
    fn host_that_leaves_the_list_of_a_subsystem_or_namespace_is_cut() {
        let listed = |hosts: Option<&[&str]>| SubsystemSpec {
            hosts: hosts.map(texts),
            ..SubsystemSpec::default()
        };
        let namespace = |hosts: Option<&[&str]>| SubsystemSpec {
            namespaces: vec![NamespaceSpec {
                nsid: 1,
                hosts: hosts.map(texts),
                ..NamespaceSpec::default()
            }],
            ..SubsystemSpec::default()
        };
        let one: Option<&[&str]> = Some(&["a"]);
        for (old, new, is_cut) in [
            (one, Some(&["b", "a"][..]), false),
            (one, None, false),
            (one, one, false),
            (one, Some(&["b"]), true),
            (one, Some(&[]), true),
            (None, one, true),
        ] {
            let told = is_disturbed(subsystem(listed(new)), subsystem(listed(old)));
            assert_eq!(told, is_cut, "{old:?} to {new:?}");
            let told = is_disturbed(subsystem(namespace(new)), subsystem(namespace(old)));
            assert_eq!(told, is_cut, "namespace: {old:?} to {new:?}");
        }
        let none = SubsystemSpec::default();
        assert!(is_disturbed(subsystem(none), subsystem(namespace(None))));
    }

    fn from_networks(networks: &[&str]) -> HostTerms {
        let networks = networks.iter();
        HostTerms {
            networks: networks
                .map(|net| net.parse().expect("a network"))
                .collect(),
            ..HostTerms::new("a")
        }
    }

    #[test]
    fn host_that_loses_a_network_is_cut() {
        let held = |networks: &[&str]| SubsystemSpec {
            terms: vec![from_networks(networks)],
            ..SubsystemSpec::default()
        };
        let (one, other) = ("192.0.2.0/24", "198.51.100.7");
        for (old, new, is_cut) in [
            (&[][..], &[one][..], true),
            (&[one], &[one, other], false),
            (&[one, other], &[other], true),
            (&[one], &[], false),
        ] {
            let told = is_disturbed(subsystem(held(new)), subsystem(held(old)));
            assert_eq!(told, is_cut, "{old:?} to {new:?}");
        }
        let any = SubsystemSpec::default();
        assert!(is_disturbed(subsystem(held(&[one])), subsystem(any)));
    }

    #[test]
    fn host_that_was_not_let_in_is_not_cut_by_its_terms() {
        let psk = Psk::new(PskHash::Sha256, |_| ());
        let with_psk = HostTerms {
            psks: vec![HostPsk {
                key: psk,
                until: None,
            }],
            ..HostTerms::new("a")
        };
        let listed = |hosts: &[&str], terms: &[HostTerms]| {
            subsystem(SubsystemSpec {
                hosts: Some(texts(hosts)),
                terms: terms.to_vec(),
                ..SubsystemSpec::default()
            })
        };
        for terms in [from_networks(&["192.0.2.0/24"]), with_psk] {
            let new = || listed(&["a", "b"], std::slice::from_ref(&terms));
            assert!(!is_disturbed(new(), listed(&["b"], &[])), "{terms:?}");
            assert!(is_disturbed(new(), listed(&["a", "b"], &[])), "{terms:?}");
        }
    }

    #[test]
    fn host_that_needs_the_key_of_all_without_a_table_from_now_on_is_cut() {
        let psk = Psk::new(PskHash::Sha256, |_| ());
        let with_psk = |nqn| HostTerms {
            psks: vec![HostPsk {
                key: psk.clone(),
                until: None,
            }],
            ..HostTerms::new(nqn)
        };
        let held = |hosts: Option<&[&str]>, terms: &[HostTerms]| {
            subsystem(SubsystemSpec {
                hosts: hosts.map(texts),
                terms: terms.to_vec(),
                ..SubsystemSpec::default()
            })
        };
        let (any, plain) = (with_psk(HostTerms::ANY_HOST), HostTerms::new("a"));
        let both = [plain, any.clone()];
        let alone = std::slice::from_ref(&any);
        let listed: Option<&[&str]> = Some(&["a"]);
        for (old, new, is_cut) in [
            (held(None, &both), held(None, alone), true),
            (held(listed, &[]), held(None, alone), true),
            (held(listed, &[]), held(None, &both), false),
            (held(Some(&[]), &[]), held(None, alone), false),
            (held(None, &[]), held(None, &both), true),
            // It has come by TLS.
            (
                held(None, alone),
                held(None, &[with_psk("a"), any.clone()]),
                false,
            ),
            (
                held(None, &[with_psk("a"), any.clone()]),
                held(None, alone),
                false,
            ),
            (held(None, &[with_psk("a")]), held(None, alone), true),
        ] {
            let told = format!("{old:?} to {new:?}");
            assert_eq!(is_disturbed(new, old), is_cut, "{told}");
        }
    }

    #[test]
    fn listener_that_a_subsystem_leaves_cuts_and_one_that_goes_does_so_by_itself() {
        let reached = |listeners: Option<&[u16]>| {
            subsystem(SubsystemSpec {
                listeners: listeners.map(<[u16]>::to_vec),
                ..SubsystemSpec::default()
            })
        };
        for (old, new, is_cut) in [
            (Some(&[0][..]), Some(&[1, 0][..]), false),
            (Some(&[0]), None, false),
            (Some(&[0, 1]), Some(&[1]), true),
            (None, Some(&[0, 1]), true),
        ] {
            let told = is_disturbed(reached(new), reached(old));
            assert_eq!(told, is_cut, "{old:?} to {new:?}");
        }
        // The first goes; the second is the first of the desired document.
        let places = &[None, Some(0)];
        let (old, new) = (reached(Some(&[0, 1])), reached(Some(&[0])));
        assert!(!disturbs(&new, Some(&old), places));
    }

    #[test]
    fn ana_state_without_access_cuts_on_a_listener_that_stays() {
        let (good, fair) = (AnaState::Optimized, AnaState::NonOptimized);
        let (gone, lost) = (AnaState::Inaccessible, AnaState::PersistentLoss);
        for (old, new, is_cut) in [
            (good, fair, false),
            (fair, good, false),
            (gone, good, false),
            (gone, lost, false),
            (good, gone, true),
            (fair, lost, true),
            (good, AnaState::Change, true),
        ] {
            let groups = |state| SubsystemSpec {
                ana_groups: ana(state),
                ..SubsystemSpec::default()
            };
            let told = is_disturbed(subsystem(groups(new)), subsystem(groups(old)));
            assert_eq!(told, is_cut, "{old:?} to {new:?}");
            let set = |state| Change::SetTargetAna {
                name: "a".to_owned(),
                groups: ana(state),
            };
            assert_eq!(is_disturbed(set(new), set(old)), is_cut);
            // The only listener that the state is of goes.
            assert!(!disturbs(&set(new), Some(&set(old)), &[Some(0), None]));
        }
        let member = |ana_group| SubsystemSpec {
            ana_groups: ana(gone),
            namespaces: vec![NamespaceSpec {
                nsid: 1,
                ana_group,
                ..NamespaceSpec::default()
            }],
            ..SubsystemSpec::default()
        };
        let (open, closed) = (subsystem(member(1)), subsystem(member(2)));
        assert!(is_disturbed(closed.clone(), open.clone()));
        assert!(!is_disturbed(open, closed));
    }

    #[test]
    fn target_cuts_by_its_portals_initiators_proofs_and_redirect() {
        let acl = |acl: &[Option<&str>]| {
            let acl = acl.iter().copied().map(initiator).collect();
            target(move |target| target.acl = acl)
        };
        let portals = |portals: &[u16]| {
            let portals = portals.to_vec();
            target(move |target| target.portal_groups[0].portals = portals)
        };
        let redirect = target(|target| {
            target.redirect = Some(Redirect {
                host: "192.0.2.1".to_owned(),
                port: 3260,
                permanent: false,
            });
        });
        let auth = target(|target| target.auth.algorithms = vec![auth::Algorithm::Md5]);
        let alias = target(|target| target.alias = Some("disk".to_owned()));
        let unchanged = || target(|_| ());
        for (old, new, is_cut) in [
            (unchanged(), alias, false),
            // Who has logged in has proved what it still proves.
            (unchanged(), auth, false),
            (unchanged(), redirect.clone(), true),
            (redirect, unchanged(), false),
            (portals(&[0]), portals(&[1, 0]), false),
            (portals(&[0, 1]), portals(&[1]), true),
            (unchanged(), target(|t| t.portal_groups.clear()), true),
            (unchanged(), target(|t| t.portal_groups[0].tag = 2), true),
            (acl(&[Some("a")]), acl(&[Some("a"), Some("b")]), false),
            (acl(&[Some("a")]), acl(&[Some("a"), None]), false),
            (acl(&[Some("a")]), acl(&[Some("b"), Some("a")]), false),
            (acl(&[Some("a")]), acl(&[Some("b")]), true),
            (acl(&[None]), acl(&[None, None]), false),
            (acl(&[Some("a"), Some("b")]), acl(&[Some("a")]), true),
            (acl(&[None]), acl(&[None, Some("a")]), false),
            (acl(&[Some("a")]), acl(&[None]), false),
            (acl(&[None]), acl(&[Some("a")]), true),
        ] {
            let told = is_disturbed(new.clone(), old.clone());
            assert_eq!(told, is_cut, "{old:?} to {new:?}");
        }
    }

    fn acl_entry(name: Option<&str>, networks: &[&str], luns: Option<&[u16]>) -> InitiatorAcl {
        let networks = networks.iter();
        InitiatorAcl {
            networks: networks
                .map(|net| net.parse().expect("a network"))
                .collect(),
            luns: luns.map(<[u16]>::to_vec),
            ..initiator(name)
        }
    }

    #[track_caller]
    fn expect_cut(old: &[InitiatorAcl], new: &[InitiatorAcl], is_cut: bool) {
        let all = |entries: &[InitiatorAcl]| {
            let entries = entries.to_vec();
            target(move |target| target.acl = entries)
        };
        let told = is_disturbed(all(new), all(old));
        assert_eq!(told, is_cut, "{old:?} to {new:?}");
        assert!(!is_disturbed(all(old), all(old)), "{old:?} stays");
    }

    #[test]
    fn initiator_is_cut_where_its_entry_allows_less_and_not_where_it_allows_more() {
        let (site, wide, other) = ("192.0.2.0/24", "192.0.0.0/16", "198.51.100.0/24");
        let of = |networks: &[&str], luns: Option<&[u16]>| acl_entry(Some("a"), networks, luns);
        for (old, new, is_cut) in [
            (of(&[site], None), of(&[site, other], None), false),
            (of(&[site], None), of(&[wide], None), false),
            (of(&[wide], None), of(&[site], None), true),
            (of(&[], None), of(&[site], None), true),
            (of(&[], Some(&[0])), of(&[], Some(&[1, 0])), false),
            (of(&[], Some(&[0])), of(&[], None), false),
            (of(&[], None), of(&[], Some(&[0])), true),
        ] {
            expect_cut(&[old], &[new], is_cut);
        }
        let one = initiator(Some("a"));
        let by_group = InitiatorAcl {
            portal_groups: vec![1],
            ..one.clone()
        };
        let secret = |text: &str| InitiatorAcl {
            auth: Some(Auth {
                chap: Some(iscsi::Credentials {
                    user: "u".to_owned(),
                    secret: auth::Secret::new(text.as_bytes().to_vec()),
                }),
                ..Auth::default()
            }),
            ..one.clone()
        };
        for (old, new, is_cut) in [
            (secret("one"), one.clone(), false),
            (one.clone(), secret("one"), true),
            (secret("one"), secret("two"), true),
            (by_group.clone(), one.clone(), false),
            (one.clone(), by_group, true),
        ] {
            expect_cut(&[old], &[new], is_cut);
        }
    }

    #[test]
    fn initiator_is_cut_by_an_entry_that_goes_before_its_own_alone() {
        let (site, other) = ("192.0.2.0/24", "198.51.100.0/24");
        let any = |networks: &[&str], luns: Option<&[u16]>| acl_entry(None, networks, luns);
        let less = acl_entry(Some("a"), &[site], Some(&[0]));
        // One that is named goes before all that are not.
        expect_cut(&[any(&[], None)], &[any(&[], None), less.clone()], true);
        let elsewhere = any(&[other], None);
        let more = [elsewhere.clone(), less];
        expect_cut(&[elsewhere], &more, false);
        // What held before another goes on to do so.
        let both = [any(&[site], Some(&[0])), any(&[], None)];
        let one = initiator(Some("a"));
        let more = [both[0].clone(), both[1].clone(), one.clone()];
        expect_cut(&both, &more, false);
        let old = [one.clone(), any(&[], Some(&[0]))];
        expect_cut(&old, &[one, any(&[], Some(&[0, 1]))], false);
    }

    #[test]
    fn initiators_that_are_sent_elsewhere_are_cut() {
        let set = |is_sent: bool| Change::SetRedirect {
            name: "a".to_owned(),
            redirect: is_sent.then(|| Redirect {
                host: "192.0.2.1".to_owned(),
                port: 3260,
                permanent: false,
            }),
        };
        assert!(is_disturbed(set(true), set(false)));
        assert!(!is_disturbed(set(false), set(true)));
    }

    #[test]
    fn rules_of_an_export_disturb_unless_more_come_behind_them() {
        for (old, new, is_cut) in [
            (&[1][..], &[1, 2][..], false),
            (&[], &[1], false),
            (&[1, 2], &[2, 1], true),
            (&[1, 2], &[1], true),
            (&[1], &[2], true),
        ] {
            let told = is_disturbed(rules(new), rules(old));
            assert_eq!(told, is_cut, "{old:?} to {new:?}");
        }
    }

    #[test]
    fn labels_that_an_export_has_no_more_disturb() {
        let rule = |security_label| {
            Change::SetExport(ExportSpec {
                path: "/".to_owned(),
                what: Exported::FileSystem("m".to_owned()),
                rules: vec![Rule {
                    security_label,
                    ..Rule::default()
                }],
            })
        };
        assert!(is_disturbed(rule(false), rule(true)));
        // Clients learn which attributes there are when they mount.
        assert!(is_disturbed(rule(true), rule(false)));
        assert!(!is_disturbed(rule(true), rule(true)));
    }

    #[test]
    fn rule_before_others_disturbs_where_it_takes_their_clients() {
        let rules = |nets: &[&str]| {
            let rule = |net: &&str| Rule {
                clients: Clients::nets(vec![net.parse().expect("a network")]),
                ..Rule::default()
            };
            Change::SetExport(ExportSpec {
                path: "/".to_owned(),
                what: Exported::FileSystem("m".to_owned()),
                rules: nets.iter().map(rule).collect(),
            })
        };
        let known = "192.0.2.0/24";
        for (new, is_cut) in [
            (&["198.51.100.7", known][..], false),
            (&["2001:db8::1", known], false),
            (&["192.0.2.7", known], true),
            (&["192.0.0.0/16", known], true),
            (&[known, "192.0.2.7"], false),
        ] {
            assert_eq!(is_disturbed(rules(new), rules(&[known])), is_cut, "{new:?}");
        }
    }
}
