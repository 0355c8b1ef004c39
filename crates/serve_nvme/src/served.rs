//! What is behind the subsystems: volumes in places that do not move.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use nvmf::Subsystem;
use nvmf::command::{AnaState, Geometry};
use store::Volume;

/// What is behind a subsystem for one host that came in by one listener: a
/// snapshot, replaced whole.
///
/// A namespace keeps its index while it exists. One that was removed leaves
/// its place empty (`nsid` 0); a place is used again only after a fence.
#[derive(Clone)]
pub struct ServedSubsystem {
    /// NQN of the subsystem.
    pub nqn: Arc<str>,
    /// NQN of the host.
    pub host: Arc<str>,
    /// Number of the listener.
    pub listener: u16,
    /// The volume at each index.
    pub volumes: Arc<[Arc<dyn Volume>]>,
    /// What the I/O path needs to know of the namespace at each index.
    pub geometry: Arc<[Geometry]>,
}

impl ServedSubsystem {
    /// The volume of a namespace, if the subsystem has it.
    pub fn volume(&self, nsid: u32) -> Option<&Arc<dyn Volume>> {
        let index = self.geometry.iter().position(|g| g.nsid == nsid);
        index.filter(|_| nsid != 0).map(|at| &self.volumes[at])
    }
}

/// A place for a namespace.
struct NamespacePlace {
    /// 0: empty, or not yet to be used again.
    nsid: u32,
    volume: Arc<dyn Volume>,
    /// Different for every namespace that ever was.
    instance: u32,
    /// Host NQNs that see it; `None` for all.
    hosts: Option<Arc<[String]>>,
    use_: NamespaceUse,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NamespaceUse {
    Free,
    Taken,
    /// Its namespace was removed; I/O that began before may be under way.
    Ending,
}

/// The places of one subsystem.
struct Places {
    nqn: Arc<str>,
    list: Vec<NamespacePlace>,
    volumes: Arc<[Arc<dyn Volume>]>,
    /// By the listener's number.
    geometry: BTreeMap<u16, Arc<[Geometry]>>,
}

/// What is behind every subsystem.
pub struct Subsystems {
    by_nqn: HashMap<String, Places>,
    /// 0 is no namespace's.
    instance_next: u32,
    /// What stands in empty places.
    nothing: Arc<dyn Volume>,
    /// Numbers of the listeners that there are.
    listeners: Vec<u16>,
}

impl Subsystems {
    /// None yet; `nothing` is to stand in empty places.
    pub fn new(nothing: Arc<dyn Volume>, listeners: Vec<u16>) -> Subsystems {
        Subsystems {
            by_nqn: HashMap::new(),
            instance_next: 1,
            nothing,
            listeners,
        }
    }

    /// These are the listeners from now on: subsystems are to be published anew.
    pub fn set_listeners(&mut self, listeners: Vec<u16>) {
        self.listeners = listeners;
    }

    /// The namespaces of the volume: subsystem and identifier.
    pub fn users(&self, volume: &Arc<dyn Volume>) -> Vec<(String, u32)> {
        let all = self.by_nqn.iter();
        all.flat_map(|(nqn, places)| places.list.iter().map(move |place| (nqn, place)))
            .filter(|(_, place)| place.nsid != 0 && Arc::ptr_eq(&place.volume, volume))
            .map(|(nqn, place)| (nqn.clone(), place.nsid))
            .collect()
    }

    /// Whether a subsystem has a place for a namespace, or will have.
    pub fn has_place(&self, nqn: &str, nsid: u32) -> bool {
        let places = self.by_nqn.get(nqn);
        places.is_some_and(|places| places.list.iter().any(|place| place.nsid == nsid))
    }

    /// In words, what still uses the volume.
    pub fn user(&self, volume: &Arc<dyn Volume>) -> Option<String> {
        if let Some((nqn, nsid)) = self.users(volume).into_iter().min() {
            return Some(format!("namespace {nsid} of {nqn}"));
        }
        let mut places = self.by_nqn.values().flat_map(|places| &places.list);
        let is_ending = places.any(|place| Arc::ptr_eq(&place.volume, volume));
        is_ending.then(|| "a namespace whose removal is not over".to_owned())
    }

    /// The volumes of some namespaces.
    pub fn volumes_of(&self, nqn: &str, nsids: &[u32]) -> Vec<Arc<dyn Volume>> {
        let places = self.by_nqn.get(nqn).into_iter();
        let places = places.flat_map(|places| &places.list);
        let meant = places.filter(|place| place.nsid != 0 && nsids.contains(&place.nsid));
        meant.map(|place| place.volume.clone()).collect()
    }

    /// Puts `volume` into a free place of a subsystem.
    pub fn place(&mut self, nqn: &str, nsid: u32, volume: Arc<dyn Volume>) {
        let instance = self.instance_next;
        self.instance_next = instance.wrapping_add(1);
        let places = (self.by_nqn.entry(nqn.to_owned())).or_insert_with(|| Places {
            nqn: nqn.into(),
            list: Vec::new(),
            volumes: Arc::new([]),
            geometry: BTreeMap::new(),
        });
        let place = NamespacePlace {
            nsid,
            volume,
            instance,
            hosts: None,
            use_: NamespaceUse::Taken,
        };
        match places
            .list
            .iter_mut()
            .find(|place| place.use_ == NamespaceUse::Free)
        {
            Some(free) => *free = place,
            None => places.list.push(place),
        }
    }

    /// Empties the place of a namespace; it rests until [`Subsystems::free`].
    ///
    /// # Panics
    /// If there is no such namespace.
    pub fn unplace(&mut self, nqn: &str, nsid: u32) -> Arc<dyn Volume> {
        let places = self.by_nqn.get_mut(nqn);
        let mut places = places.into_iter().flat_map(|places| &mut places.list);
        let place = places.find(|place| place.nsid == nsid);
        let place = place.expect("the registry's namespaces have places");
        place.nsid = 0;
        place.use_ = NamespaceUse::Ending;
        place.volume.clone()
    }

    /// No I/O is left of those that had begun on `volume` before: places of its
    /// removed namespaces may be used again.
    pub fn free(&mut self, volume: &Arc<dyn Volume>) {
        let places = self.by_nqn.values_mut().flat_map(|places| &mut places.list);
        for place in places {
            if place.use_ == NamespaceUse::Ending && Arc::ptr_eq(&place.volume, volume) {
                place.use_ = NamespaceUse::Free;
                place.volume = self.nothing.clone();
            }
        }
    }

    /// Forgets a subsystem.
    pub fn forget(&mut self, nqn: &str) {
        self.by_nqn.remove(nqn);
    }

    /// Makes the snapshots of `subsystem` anew; whether they differ.
    pub fn publish(&mut self, subsystem: &Subsystem) -> bool {
        let Some(places) = self.by_nqn.get_mut(&subsystem.nqn) else {
            return false;
        };
        let mut is_new = false;
        for place in &mut places.list {
            let namespace = subsystem
                .namespace(place.nsid)
                .map(|(_, namespace)| namespace);
            let hosts = namespace.and_then(|n| n.hosts.as_deref().map(Arc::from));
            is_new |= place.hosts != hosts;
            place.hosts = hosts;
        }
        let list = &places.list;
        let is_same =
            |(place, old): (&NamespacePlace, &Arc<dyn Volume>)| Arc::ptr_eq(&place.volume, old);
        if list.len() != places.volumes.len() || !list.iter().zip(&*places.volumes).all(is_same) {
            is_new = true;
            places.volumes = list.iter().map(|place| place.volume.clone()).collect();
        }
        let of = |listener: u16| -> Arc<[Geometry]> {
            let places = list.iter();
            places
                .map(|place| geometry(place, subsystem, listener))
                .collect()
        };
        let geometry = self.listeners.iter().map(|&n| (n, of(n))).collect();
        is_new |= places.geometry != geometry;
        places.geometry = geometry;
        is_new
    }

    /// What is behind a subsystem for a host that came in by a listener;
    /// nothing behind the discovery subsystem.
    pub fn served(&self, nqn: &str, listener: u16, host: Arc<str>) -> ServedSubsystem {
        let Some((places, geometry)) = (self.by_nqn.get(nqn))
            .and_then(|places| Some((places, places.geometry.get(&listener)?)))
        else {
            return ServedSubsystem {
                nqn: nqn.into(),
                host,
                listener,
                volumes: Arc::new([]),
                geometry: Arc::new([]),
            };
        };
        let is_hidden = |place: &NamespacePlace| {
            let hosts = place.hosts.as_ref();
            hosts.is_some_and(|hosts| !hosts.iter().any(|may| **may == *host))
        };
        let mut geometry = geometry.clone();
        if places.list.iter().any(is_hidden) {
            let masked = places.list.iter().zip(&*geometry);
            geometry = masked
                .map(|(place, known)| if is_hidden(place) { EMPTY } else { *known })
                .collect();
        }
        ServedSubsystem {
            nqn: places.nqn.clone(),
            host,
            listener,
            volumes: places.volumes.clone(),
            geometry,
        }
    }
}

/// A place without a namespace.
const EMPTY: Geometry = Geometry {
    nsid: 0,
    block_shift: 9,
    read_only: true,
    block_count: 0,
    ana: AnaState::Optimized,
    instance: 0,
};

fn geometry(place: &NamespacePlace, subsystem: &Subsystem, listener: u16) -> Geometry {
    let Some((_, namespace)) = subsystem.namespace(place.nsid) else {
        return EMPTY;
    };
    Geometry {
        nsid: namespace.nsid,
        block_shift: namespace.block_bytes.trailing_zeros() as u8,
        read_only: namespace.refuses_writes(),
        block_count: namespace.block_count,
        ana: subsystem.ana_state(listener, namespace.ana_group),
        instance: place.instance,
    }
}
