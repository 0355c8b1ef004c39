//! What is behind iSCSI targets: logical units in places that do not move.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use nvmf::AnaGroup;
use nvmf::command::AnaState;
use scsi::provisioning::{Reached, Space};
use scsi::{
    AccessState, Attention, Modes, PRODUCT, Port, PortGroup, TargetView, Unit, UnitIdentity, VENDOR,
};
use store::Volume;

/// Where the states of a target's ANA groups are: what SCSI calls ALUA. The
/// state of a group on the listeners of a portal group, which may be of both
/// protocols, is that of the target port group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ana {
    /// With the target: groups whose state is not ANA Optimized everywhere.
    Own(Vec<AnaGroup>),
    /// With the subsystem of this NQN, so that both protocols say the same.
    Subsystem(String),
}

impl Default for Ana {
    fn default() -> Self {
        Ana::Own(Vec::new())
    }
}

/// A physical block is so large where logical ones are smaller, bytes.
const PHYSICAL_BLOCK_BYTES: u32 = 4096;

/// One logical unit as one target port shows it.
#[derive(Clone)]
pub struct Lun {
    /// What the device server needs to know of it.
    pub unit: Arc<Unit>,
    /// The volume behind it.
    pub volume: Arc<dyn Volume>,
    /// Different for every logical unit that ever was.
    pub instance: u32,
}

/// What is behind a target for one initiator at one of its ports: a snapshot,
/// replaced whole.
///
/// A logical unit keeps its place while it exists. The place of one that was
/// removed is empty, and used again only after a fence.
#[derive(Clone)]
pub struct ServedTarget {
    /// The target, and the units that the initiator sees.
    pub view: Arc<TargetView>,
    /// Portal group tag: the target port.
    pub tag: u16,
    /// What is at each place.
    pub places: Arc<[Option<Lun>]>,
    /// By LUN, the place and 1; 0 where there is none.
    index: Arc<[u16]>,
}

impl ServedTarget {
    /// The place of a logical unit, if the initiator has it.
    #[inline]
    pub fn place_of(&self, lun: u16) -> Option<u32> {
        let place = self.index.get(usize::from(lun))?;
        place.checked_sub(1).map(u32::from)
    }

    /// What is at a place.
    #[inline]
    pub fn at(&self, place: u32) -> Option<&Lun> {
        self.places[place as usize].as_ref()
    }
}

/// A place for a logical unit.
struct UnitPlace {
    lun: u16,
    volume: Arc<dyn Volume>,
    /// Capacity that initiators see, in logical blocks.
    block_count: u64,
    ana_group: u32,
    modes: Modes,
    default_modes: Modes,
    /// Which thresholds of space it was told to have reached.
    reached: Reached,
    instance: u32,
    use_: UnitUse,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UnitUse {
    Free,
    Taken,
    /// Its unit was removed; I/O that began before may be under way.
    Ending,
}

/// The places of one target.
#[derive(Default)]
struct Places {
    list: Vec<UnitPlace>,
    /// Where the states of its ANA groups are.
    ana: Ana,
    /// The mode parameters that its units begin with.
    default_modes: Modes,
    /// By portal group tag.
    shown: BTreeMap<u16, Arc<[Option<Lun>]>>,
}

/// What is behind every iSCSI target.
pub struct Targets {
    by_name: HashMap<String, Places>,
    /// 0 is no unit's.
    instance_next: u32,
    /// What stands in empty places.
    nothing: Arc<dyn Volume>,
    /// Data of one command at most, bytes.
    io_bytes_max: u32,
    is_drained: bool,
}

impl Targets {
    /// None yet; `nothing` is to stand in empty places.
    pub fn new(nothing: Arc<dyn Volume>, io_bytes_max: u32) -> Targets {
        Targets {
            by_name: HashMap::new(),
            instance_next: 1,
            nothing,
            io_bytes_max,
            is_drained: false,
        }
    }

    /// From now on no path gives access, whatever the states are, or they do again: targets
    /// are to be published anew.
    pub fn set_drained(&mut self, is_drained: bool) {
        self.is_drained = is_drained;
    }

    /// The logical units of the volume: target and LUN.
    pub fn users(&self, volume: &Arc<dyn Volume>) -> Vec<(String, u16)> {
        let all = self.by_name.iter();
        all.flat_map(|(name, places)| places.list.iter().map(move |place| (name, place)))
            .filter(|(_, place)| place.is_of(volume) && place.use_ == UnitUse::Taken)
            .map(|(name, place)| (name.clone(), place.lun))
            .collect()
    }

    /// In words, what still uses the volume.
    pub fn user(&self, volume: &Arc<dyn Volume>) -> Option<String> {
        if let Some((name, lun)) = self.users(volume).into_iter().min() {
            return Some(format!("LUN {lun} of {name}"));
        }
        let mut places = self.by_name.values().flat_map(|places| &places.list);
        let is_ending = places.any(|place| place.is_of(volume) && place.use_ == UnitUse::Ending);
        is_ending.then(|| "a logical unit whose removal is not over".to_owned())
    }

    /// Whether a target has a place for a logical unit, or will have.
    pub fn has_place(&self, target: &str, lun: u16) -> bool {
        let places = self.by_name.get(target);
        places.is_some_and(|places| {
            places
                .list
                .iter()
                .any(|p| p.lun == lun && p.use_ == UnitUse::Taken)
        })
    }

    /// The LUNs of a target with their volumes and ANA groups, ascending.
    pub fn luns(&self, target: &str) -> Vec<(u16, Arc<dyn Volume>, u32)> {
        let places = self.by_name.get(target).into_iter();
        let taken = (places.flat_map(|places| &places.list)).filter(|p| p.use_ == UnitUse::Taken);
        let mut luns: Vec<_> = taken
            .map(|place| (place.lun, place.volume.clone(), place.ana_group))
            .collect();
        luns.sort_by_key(|(lun, ..)| *lun);
        luns
    }

    /// Puts `volume` into a free place of a target.
    pub fn place(&mut self, target: &str, lun: u16, ana_group: u32, volume: Arc<dyn Volume>) {
        let instance = self.instance_next;
        self.instance_next = instance.wrapping_add(1).max(1);
        let places = self.by_name.entry(target.to_owned());
        let places = places.or_default();
        let default_modes = places.default_modes;
        let place = UnitPlace {
            lun,
            block_count: volume.size_bytes() / u64::from(volume.info().block_bytes),
            volume,
            ana_group,
            modes: default_modes,
            default_modes,
            reached: Reached::default(),
            instance,
            use_: UnitUse::Taken,
        };
        match places
            .list
            .iter_mut()
            .find(|place| place.use_ == UnitUse::Free)
        {
            Some(free) => *free = place,
            None => places.list.push(place),
        }
    }

    /// Empties the place of a logical unit; it rests until [`Targets::free`].
    ///
    /// # Panics
    /// If there is no such unit.
    pub fn unplace(&mut self, target: &str, lun: u16) -> Arc<dyn Volume> {
        let place = self.find(target, lun);
        let place = place.expect("units that are removed have places");
        place.use_ = UnitUse::Ending;
        place.volume.clone()
    }

    /// No I/O is left of those that had begun on `volume` before: places of its
    /// removed units may be used again.
    pub fn free(&mut self, volume: &Arc<dyn Volume>) {
        let places = self.by_name.values_mut().flat_map(|p| &mut p.list);
        for place in places {
            if place.use_ == UnitUse::Ending && place.is_of(volume) {
                place.use_ = UnitUse::Free;
                place.volume = self.nothing.clone();
            }
        }
    }

    /// Says where the states of a target's ANA groups are; a target that is new
    /// is there from then on.
    pub fn set_ana(&mut self, target: &str, ana: Ana) {
        self.by_name.entry(target.to_owned()).or_default().ana = ana;
    }

    /// Says with which mode parameters units that come to a target begin.
    pub fn set_default_modes(&mut self, target: &str, modes: Modes) {
        if let Some(places) = self.by_name.get_mut(target) {
            places.default_modes = modes;
        }
    }

    /// Where the states of a target's ANA groups are.
    pub fn ana_of(&self, target: &str) -> Option<Ana> {
        self.by_name.get(target).map(|places| places.ana.clone())
    }

    /// The targets whose states are those of a subsystem.
    pub fn sharing(&self, nqn: &str) -> Vec<String> {
        let is_its = |places: &Places| matches!(&places.ana, Ana::Subsystem(its) if its == nqn);
        let all = self.by_name.iter();
        all.filter(|(_, places)| is_its(places))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Forgets a target.
    pub fn forget(&mut self, target: &str) {
        self.by_name.remove(target);
    }

    /// Initiators are to see another capacity of a volume, in logical blocks.
    /// The targets to be published for it.
    pub fn set_block_count(&mut self, volume: &Arc<dyn Volume>, block_count: u64) -> Vec<String> {
        let mut changed = Vec::new();
        for (name, places) in &mut self.by_name {
            let count = changed.len();
            for place in places.list.iter_mut().filter(|place| place.is_of(volume)) {
                place.block_count = block_count;
                changed.truncate(count);
                changed.push(name.clone());
            }
        }
        changed
    }

    /// Sets the mode parameters of a logical unit, if it is there.
    pub fn set_modes(&mut self, target: &str, lun: u16, modes: Modes) {
        if let Some(place) = self.find(target, lun) {
            // A threshold that is set is told even if it was reached before.
            if place.modes.thresholds != modes.thresholds {
                place.reached = Reached::default();
            }
            place.modes = modes;
        }
    }

    /// The mode parameters of a logical unit, if it is there, are what they were
    /// at first, and its thresholds are told again.
    pub fn reset_modes(&mut self, target: &str, lun: u16) {
        if let Some(place) = self.find(target, lun) {
            place.modes = place.default_modes;
            place.reached = Reached::default();
        }
    }

    /// The units that have a threshold of space: target, LUN, volume.
    pub fn watched(&self) -> Vec<(String, u16, Arc<dyn Volume>)> {
        let all = self.by_name.iter();
        all.flat_map(|(name, places)| places.list.iter().map(move |place| (name, place)))
            .filter(|(_, place)| place.use_ == UnitUse::Taken && place.is_thin())
            .filter(|(_, place)| place.modes.thresholds.is_any_enabled())
            .map(|(name, place)| (name.clone(), place.lun, place.volume.clone()))
            .collect()
    }

    /// The thresholds of space that units of a target are beyond, by LUN.
    pub fn reached(&self, target: &str) -> Vec<(u16, Attention)> {
        let places = self.by_name.get(target).into_iter();
        let taken = (places.flat_map(|places| &places.list)).filter(|p| p.use_ == UnitUse::Taken);
        let all = taken.flat_map(|place| {
            let attentions = place.reached.attentions();
            attentions.map(move |attention| (place.lun, attention))
        });
        all.collect()
    }

    /// There is so much space below a unit: what its initiators are to be told.
    pub fn reach(&mut self, target: &str, lun: u16, space: Space) -> Vec<Attention> {
        let Some(place) = self.find(target, lun) else {
            return Vec::new();
        };
        let (told, reached) = place.modes.thresholds.reach(space, place.reached);
        place.reached = reached;
        told
    }

    fn find(&mut self, target: &str, lun: u16) -> Option<&mut UnitPlace> {
        let places = self.by_name.get_mut(target)?;
        let mut taken = (places.list.iter_mut()).filter(|place| place.use_ == UnitUse::Taken);
        taken.find(|place| place.lun == lun)
    }

    /// Makes the snapshots of `target` anew, with these states of its ANA groups.
    pub fn publish(&mut self, target: &iscsi::Target, ana: &[AnaGroup]) {
        let Some(places) = self.by_name.get_mut(&target.name) else {
            return;
        };
        let (io_bytes_max, is_drained) = (self.io_bytes_max, self.is_drained);
        let groups: Vec<Arc<[PortGroup]>> = (places.list.iter())
            .map(|place| port_groups(target, (ana, is_drained), place.ana_group))
            .collect();
        let of = |tag: u16| -> Arc<[Option<Lun>]> {
            let places = places.list.iter().zip(&groups);
            places
                .map(|(place, groups)| place.show(tag, groups, io_bytes_max))
                .collect()
        };
        let tags = target.portal_groups.iter().map(|group| group.tag);
        places.shown = tags.map(|tag| (tag, of(tag))).collect();
    }

    /// What is behind a target for an initiator that reached one of its ports
    /// and may see these units; nothing where there is no such target.
    pub fn served(&self, target: &str, tag: u16, mask: Option<Arc<[u16]>>) -> ServedTarget {
        let places = self.by_name.get(target);
        let places = places.and_then(|places| places.shown.get(&tag)).cloned();
        let mut places = places.unwrap_or_default();
        if let Some(mask) = mask {
            // What it does not see is not there for it, also where it was.
            let sees = |lun: &Lun| mask.contains(&lun.unit.lun);
            let seen = places.iter().map(|place| place.clone().filter(sees));
            places = seen.collect();
        }
        let shown = (1..).zip(places.iter());
        let shown = shown.filter_map(|(at, place)| Some((at, place.as_ref()?.unit.lun)));
        let mut shown: Vec<(u16, u16)> = shown.collect();
        shown.sort_by_key(|(_, lun)| *lun);
        let mut index = vec![0; shown.last().map_or(0, |(_, lun)| usize::from(*lun) + 1)];
        for (at, lun) in &shown {
            index[usize::from(*lun)] = *at;
        }
        ServedTarget {
            view: Arc::new(TargetView {
                name: target.to_owned(),
                luns: shown.into_iter().map(|(_, lun)| lun).collect(),
            }),
            tag,
            places,
            index: index.into(),
        }
    }

    /// What is to be in the place of `old` now, for an initiator that may see
    /// these units.
    pub fn renewed(&self, old: &ServedTarget, mask: Option<Arc<[u16]>>) -> ServedTarget {
        self.served(&old.view.name, old.tag, mask)
    }
}

impl UnitPlace {
    fn is_of(&self, volume: &Arc<dyn Volume>) -> bool {
        Arc::ptr_eq(&self.volume, volume)
    }

    fn is_thin(&self) -> bool {
        self.volume.info().is_thin
    }

    /// What a target port shows of it.
    fn show(&self, tag: u16, groups: &Arc<[PortGroup]>, io_bytes_max: u32) -> Option<Lun> {
        if self.use_ != UnitUse::Taken {
            return None;
        }
        let (info, state) = (self.volume.info(), self.volume.state());
        let revision = env!("CARGO_PKG_VERSION");
        let or =
            |given: &Option<String>, own: &str| given.clone().unwrap_or_else(|| own.to_owned());
        let identity = UnitIdentity {
            uuid: info.uuid.into_bytes(),
            nguid: info.nguid,
            eui64: info.eui64,
            naa: info.naa.clone(),
            serial: info.serial.clone(),
            vendor: or(&info.vendor, VENDOR),
            product: or(&info.product, PRODUCT),
            revision: or(&info.revision, &revision[..revision.len().min(4)]),
        };
        let here = groups.iter().find(|group| group.tag == tag);
        // Memory has no larger blocks.
        let physical = match info.volatile_cache {
            false => 1,
            true => PHYSICAL_BLOCK_BYTES / info.block_bytes,
        };
        let unit = Unit {
            lun: self.lun,
            block_bytes: info.block_bytes,
            block_count: self.block_count,
            physical_exponent: physical.max(1).trailing_zeros() as u8,
            identity,
            read_only: info.read_only || state.is_write_protected(),
            is_encrypted: self.volume.encryption().is_some(),
            thin: self.is_thin(),
            volatile_cache: info.volatile_cache,
            atomic_bytes: info.atomic_bytes,
            atomic_power_fail_bytes: info.atomic_power_fail_bytes,
            io_bytes_max,
            can_persist: state.can_persist(),
            modes: self.modes,
            default_modes: self.default_modes,
            here: Port {
                group: tag,
                id: tag,
            },
            state: here.map_or(AccessState::Unavailable, |group| group.state),
            groups: groups.clone(),
        };
        Some(Lun {
            unit: Arc::new(unit),
            volume: self.volume.clone(),
            instance: self.instance,
        })
    }
}

/// The ways to a unit of an ANA group: a target port group for each portal
/// group, with its tag, in which its one port has that number too.
fn port_groups(
    target: &iscsi::Target,
    (ana, is_drained): (&[AnaGroup], bool),
    group: u32,
) -> Arc<[PortGroup]> {
    let group = ana.iter().find(|known| known.id == group);
    let state_on = |portal: &u16| {
        let state = group.map_or(AnaState::Optimized, |g| g.state_on(*portal));
        state.drained(is_drained)
    };
    let groups = target.portal_groups.iter().map(|portals| PortGroup {
        tag: portals.tag,
        // Where one of its portals is better than the others, they can use it.
        state: (portals.portals.iter().map(state_on).map(access_state))
            .min_by_key(|state| *state as u8)
            .unwrap_or(AccessState::Unavailable),
        ports: vec![portals.tag],
    });
    groups.collect()
}

/// What SCSI calls a state of an ANA group.
pub(crate) fn access_state(state: AnaState) -> AccessState {
    match state {
        AnaState::Optimized => AccessState::ActiveOptimized,
        AnaState::NonOptimized => AccessState::ActiveNonOptimized,
        AnaState::Inaccessible => AccessState::Standby,
        AnaState::PersistentLoss => AccessState::Unavailable,
        AnaState::Change => AccessState::Transitioning,
    }
}

/// What NVMe calls a state that SET TARGET PORT GROUPS can set.
pub fn ana_state(state: AccessState) -> AnaState {
    match state {
        AccessState::ActiveOptimized => AnaState::Optimized,
        AccessState::ActiveNonOptimized => AnaState::NonOptimized,
        AccessState::Standby => AnaState::Inaccessible,
        AccessState::Unavailable | AccessState::Offline => AnaState::PersistentLoss,
        AccessState::Transitioning => AnaState::Change,
    }
}
