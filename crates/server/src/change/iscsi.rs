//! Changes of iSCSI targets: themselves, their logical units, the initiators that may use
//! them and the states of their paths.

use ::iscsi::{PortalGroup, Target};
use engine::About;
use scsi::provisioning::{Threshold, Thresholds};
use scsi::{AccessState, Modes};

use super::namespaces::{check_ana_groups, subsystem};
use super::*;
use crate::config::Protocol;
use crate::state::ServedState;
use serve_iscsi::{StatesSet, Targets, ana_state};

impl Shared {
    pub(super) fn add_target(&self, spec: &IscsiTargetSpec) -> Result<Left, ChangeError> {
        let change = self.insert_target(spec)?;
        Ok(self.dismiss_and_wait(change, Vec::new()))
    }

    /// Checks a new target and puts it in.
    pub(crate) fn insert_target(
        &self,
        spec: &IscsiTargetSpec,
    ) -> Result<::iscsi::SessionChange, ChangeError> {
        let nvme = self.nvme.registry();
        let mut registry = self.iscsi.registry();
        let mut target = checked(&spec.target)?;
        let name = target.name.clone();
        if registry.target(&name).is_some() {
            return Err(ChangeError::Exists("target", name));
        }
        let groups = match &spec.ana {
            Ana::Own(groups) => groups.clone(),
            Ana::Subsystem(nqn) => subsystem(&nvme, nqn)?.ana_groups,
        };
        check_ana_groups(&groups)?;
        let (mut state, mut places) = (self.state(), self.iscsi.places());
        settle_portal_groups(&mut target, &mut state)?;
        places.set_ana(&name, spec.ana.clone());
        places.set_default_modes(&name, modes_of(spec));
        for lun in &spec.luns {
            if let Err(error) = place_lun(&state, &mut places, &name, lun) {
                places.forget(&name);
                state.everywhere.remove(&name);
                return Err(error);
            }
        }
        // No session is there yet that would have to learn of it.
        places.publish(&target, &groups);
        Ok(registry.replace_target(Arc::new(target)))
    }

    pub(super) fn remove_target(&self, name: &str) -> Result<Left, ChangeError> {
        let mut registry = self.iscsi.registry();
        let name = known(&registry, name)?.name.clone();
        let change = registry.remove_target(&name);
        self.iscsi.places().forget(&name);
        self.state().everywhere.remove(&name);
        drop(registry);
        Ok(self.dismiss_and_wait(change, Vec::new()))
    }

    pub(super) fn add_lun(&self, name: &str, lun: &LunSpec) -> Result<Left, ChangeError> {
        let name = known(&self.iscsi.registry(), name)?.name.clone();
        place_lun(&self.state(), &mut self.iscsi.places(), &name, lun)?;
        Ok(self.widen_targets(vec![name]))
    }

    /// Sessions with targets allow more than before, and when all do, their
    /// initiators are told.
    pub(super) fn widen_targets(&self, names: Vec<String>) -> Left {
        names.iter().for_each(|name| self.iscsi.prepare(name));
        let tell = move |shared: &Arc<Shared>, done: ChangeDone| shared.tell_targets(&names, done);
        Left::Fence(Scope::Mail, Box::new(tell))
    }

    fn tell_targets(self: &Arc<Self>, names: &[String], done: ChangeDone) {
        names.iter().for_each(|name| self.iscsi.publish(name, None));
        self.fence(Scope::Mail, move |shared| done(shared, Ok(())));
    }

    pub(super) fn remove_lun(&self, name: &str, lun: u16) -> Result<Left, ChangeError> {
        let name = known(&self.iscsi.registry(), name)?.name.clone();
        let mut places = self.iscsi.places();
        if !places.luns(&name).iter().any(|(known, ..)| *known == lun) {
            let text = format!("{lun} of {name}");
            return Err(ChangeError::Unknown("LUN", text));
        }
        let volume = places.unplace(&name, lun);
        drop(places);
        self.iscsi.publish(&name, None);
        let scope = Scope::Volumes(vec![volume.clone()]);
        let free = move |shared: &Arc<Shared>, done: ChangeDone| {
            shared.iscsi.places().free(&volume);
            drop(volume);
            shared.iscsi.publish(&name, None);
            // Then no session holds the volume any more.
            shared.fence(Scope::Mail, move |shared| done(shared, Ok(())));
        };
        Ok(Left::Fence(scope, Box::new(free)))
    }

    pub(super) fn set_target(&self, target: &Target) -> Result<Left, ChangeError> {
        let mut target = checked(target)?;
        let name = known(&self.iscsi.registry(), &target.name)?.name.clone();
        let mut state = self.state();
        settle_portal_groups(&mut target, &mut state)?;
        drop(state);
        self.replace_target(&name, |known| *known = target)
    }

    pub(super) fn set_initiators(
        &self,
        name: &str,
        acl: &[InitiatorAcl],
    ) -> Result<Left, ChangeError> {
        let acl = check::acl(acl).map_err(ChangeError::Invalid)?;
        let name = known(&self.iscsi.registry(), name)?.name.clone();
        self.replace_target(&name, |target| target.acl = acl)
    }

    /// Changes which initiators may use a target and which units they see: one that
    /// loses a unit has no command under way there at the end.
    fn replace_target(
        &self,
        name: &str,
        edit: impl FnOnce(&mut Target),
    ) -> Result<Left, ChangeError> {
        let luns = self.iscsi.places().luns(name);
        let volumes = luns.into_iter().map(|(_, volume, _)| volume);
        let change = self.edit_target(name, edit)?;
        Ok(self.dismiss_and_wait(change, volumes.collect()))
    }

    pub(super) fn set_auth(&self, name: &str, auth: Auth) -> Result<Left, ChangeError> {
        check::auth(&auth).map_err(ChangeError::Invalid)?;
        let change = self.edit_target(name, |target| target.auth = auth)?;
        Ok(self.dismiss_and_wait(change, Vec::new()))
    }

    pub(super) fn set_redirect(
        &self,
        name: &str,
        redirect: Option<Redirect>,
    ) -> Result<Left, ChangeError> {
        if let Some(redirect) = &redirect {
            check::host(&redirect.host).map_err(ChangeError::Invalid)?;
        }
        let change = self.edit_target(name, |target| target.redirect = redirect)?;
        let closing = change.closing.iter();
        let closing: Vec<_> = closing
            .map(|packed| ConnectionRef::unpack(*packed))
            .collect();
        change
            .closing
            .iter()
            .for_each(|packed| self.iscsi.ask_to_leave(*packed));
        Ok(match closing.is_empty() {
            true => Left::Nothing,
            false => Left::fence(Scope::Connections(closing)),
        })
    }

    pub(super) fn set_discovery(&self, auth: Auth) -> Result<Left, ChangeError> {
        check::auth(&auth).map_err(ChangeError::Invalid)?;
        self.iscsi.registry().set_discovery(auth);
        Ok(Left::Nothing)
    }

    /// Puts an edited target in the place of the one there is.
    fn edit_target(
        &self,
        name: &str,
        edit: impl FnOnce(&mut Target),
    ) -> Result<::iscsi::SessionChange, ChangeError> {
        let mut registry = self.iscsi.registry();
        let mut target = (*known(&registry, name)?).clone();
        edit(&mut target);
        let name = target.name.clone();
        let change = registry.replace_target(Arc::new(target));
        drop(registry);
        self.iscsi.publish(&name, None);
        Ok(change)
    }

    /// Asks the initiators of connections to leave and closes them. The change
    /// is true when they are gone, and then nothing that began before is left on
    /// `volumes`.
    pub(super) fn dismiss_and_wait(
        &self,
        change: ::iscsi::SessionChange,
        volumes: Vec<Arc<dyn Volume>>,
    ) -> Left {
        let closing = change.closing.iter();
        let closing: Vec<_> = closing
            .map(|packed| ConnectionRef::unpack(*packed))
            .collect();
        for packed in change.closing {
            self.engine.dismiss(packed);
        }
        let left = match volumes.is_empty() {
            true => Left::Nothing,
            false => Left::fence(Scope::Volumes(volumes)),
        };
        match closing.is_empty() {
            true => left,
            false => Left::Fence(
                Scope::Connections(closing),
                Box::new(move |shared, done| left.run(shared, done)),
            ),
        }
    }

    /// The state of a target's ANA group, where the groups are its own.
    pub(super) fn set_target_ana(
        &self,
        name: &str,
        listener: Option<SocketAddr>,
        group: u32,
        ana: AnaState,
    ) -> Result<Left, ChangeError> {
        let group = check::ana_group(group.into()).map_err(ChangeError::Invalid)?;
        let target = known(&self.iscsi.registry(), name)?;
        let name = target.name.clone();
        let source = self.iscsi.places().ana_of(&name);
        let mut groups = match source {
            Some(Ana::Subsystem(nqn)) => return self.set_ana(&nqn, listener, group, ana),
            Some(Ana::Own(groups)) => groups,
            None => Vec::new(),
        };
        let numbers = match listener {
            None => vec![None],
            Some(address) => {
                let number = self.listener(address)?;
                let portals = target.portal_group_of(number).ok_or_else(|| {
                    ChangeError::Invalid(format!("{name} is not reached on {address}"))
                })?;
                portals.portals.iter().copied().map(Some).collect()
            }
        };
        let edited = AnaGroup::find_or_add(&mut groups, group);
        for number in numbers {
            edited.set_state(number, ana);
        }
        let mut places = self.iscsi.places();
        places.set_ana(&name, Ana::Own(groups));
        let luns = places.luns(&name);
        drop(places);
        if ana.is_accessible() {
            return Ok(self.widen_targets(vec![name]));
        }
        self.iscsi.publish(&name, None);
        let members = luns.into_iter().filter(|(.., of)| *of == group);
        let volumes = members.map(|(_, volume, _)| volume).collect();
        Ok(Left::fence(Scope::Volumes(volumes)))
    }

    pub(super) fn set_target_ana_groups(
        &self,
        name: &str,
        groups: Vec<AnaGroup>,
    ) -> Result<Left, ChangeError> {
        check_ana_groups(&groups)?;
        let name = known(&self.iscsi.registry(), name)?.name.clone();
        let mut places = self.iscsi.places();
        if let Some(Ana::Subsystem(nqn)) = places.ana_of(&name) {
            let text = format!("the states of {name} are those of {nqn}: set them there");
            return Err(ChangeError::Invalid(text));
        }
        places.set_ana(&name, Ana::Own(groups));
        let luns = places.luns(&name);
        drop(places);
        let volumes = luns.into_iter().map(|(_, volume, _)| volume).collect();
        Ok(self.widen_targets(vec![name]).then_fence(volumes))
    }

    /// The listeners that have one state with this one for a subsystem: those of
    /// the portal groups of the targets that share its states.
    pub(super) fn together(&self, nqn: &str, number: u16) -> Vec<u16> {
        let registry = self.iscsi.registry();
        let sharing = self.iscsi.places().sharing(nqn);
        let targets = sharing.iter().filter_map(|name| registry.target(name));
        let groups = targets.filter_map(|target| target.portal_group_of(number));
        let mut numbers = vec![number];
        for portal in groups.flat_map(|group| &group.portals) {
            if !numbers.contains(portal) {
                numbers.push(*portal);
            }
        }
        numbers
    }

    /// The volumes of an ANA group's logical units in the targets that share the
    /// states of a subsystem.
    pub(super) fn behind_targets(&self, nqn: &str, group: u32) -> Vec<Arc<dyn Volume>> {
        let places = self.iscsi.places();
        let targets = places.sharing(nqn).into_iter();
        let luns = targets.flat_map(|name| places.luns(&name));
        let members = luns.filter(|(.., of)| *of == group);
        members.map(|(_, volume, _)| volume).collect()
    }

    /// Every logical unit of the volume shows that it is smaller.
    pub(super) fn shrink_luns(&self, volume: &Arc<dyn Volume>, size_bytes: u64) {
        let names = self.set_block_count(volume, size_bytes);
        names.iter().for_each(|name| self.iscsi.publish(name, None));
    }

    /// Every logical unit of the volume shows that it is larger, at first with
    /// what is `left` to be done for others.
    pub(super) fn grow_luns(
        &self,
        volume: &Arc<dyn Volume>,
        size_bytes: u64,
        left: impl FnOnce() -> Left,
    ) -> Left {
        let names = self.set_block_count(volume, size_bytes);
        names.iter().for_each(|name| self.iscsi.prepare(name));
        let left = left();
        Left::More(Box::new(move |shared, done| {
            let others = move |shared: &Arc<Shared>, outcome: ChangeOutcome| match outcome {
                Ok(()) => shared.tell_targets(&names, done),
                Err(error) => done(shared, Err(error)),
            };
            left.run(shared, Box::new(others));
        }))
    }

    fn set_block_count(&self, volume: &Arc<dyn Volume>, size_bytes: u64) -> Vec<String> {
        let blocks = size_bytes / u64::from(volume.info().block_bytes);
        self.iscsi.places().set_block_count(volume, blocks)
    }

    /// The portal of a number came or went: initiators are told of those that
    /// there are. One that comes back is in the portal groups that it was in,
    /// `back_in`, by target and tag. The change, and the targets that are to be
    /// published.
    pub(super) fn settle_portals(
        registry: &mut ::iscsi::Registry,
        state: &ServedState,
        number: u16,
        back_in: &[(String, u16)],
    ) -> (::iscsi::SessionChange, Vec<String>) {
        registry.set_portals(state.portals());
        let is_there = |number: &u16| state.listeners.contains_key(number);
        let mut change = ::iscsi::SessionChange::default();
        let mut names = Vec::new();
        let targets: Vec<_> = registry.targets().cloned().collect();
        for target in targets {
            let mut groups = target.portal_groups.clone();
            if state.everywhere.contains(&target.name) {
                groups = vec![state.all_portals()];
            } else {
                groups
                    .iter_mut()
                    .for_each(|group| group.portals.retain(is_there));
                let back = back_in.iter().filter(|(name, _)| *name == target.name);
                for (_, tag) in back {
                    if let Some(group) = groups.iter_mut().find(|group| group.tag == *tag) {
                        group.portals.push(number);
                    }
                }
            }
            if groups != target.portal_groups {
                let edited = Target {
                    portal_groups: groups,
                    ..(*target).clone()
                };
                let one = registry.replace_target(Arc::new(edited));
                change.closing.extend(one.closing);
                names.push(target.name.clone());
            }
        }
        (change, names)
    }

    /// The end of [`Shared::settle_portals`], without a lock.
    pub(super) fn publish_edited(&self, change: ::iscsi::SessionChange, targets: Vec<String>) {
        change
            .closing
            .iter()
            .for_each(|packed| self.engine.dismiss(*packed));
        targets
            .iter()
            .for_each(|name| self.iscsi.publish(name, None));
    }
}

/// A target as it may be, its names as they are compared.
fn checked(target: &Target) -> Result<Target, ChangeError> {
    let mut target = target.clone();
    let name = ::iscsi::check_target_name(&target.name);
    target.name = name.map_err(|why| ChangeError::Invalid(why.to_string()))?;
    target.acl = check::acl(&target.acl).map_err(ChangeError::Invalid)?;
    let alias = target.alias.as_deref().map_or(Ok(()), check::alias);
    let redirect = target.redirect.as_ref();
    let redirect = redirect.map_or(Ok(()), |redirect| check::host(&redirect.host));
    alias
        .and(redirect)
        .and_then(|()| check::auth(&target.auth))
        .and_then(|()| check::iscsi_limits(&target.limits))
        .map_err(ChangeError::Invalid)?;
    Ok(target)
}

/// Where a target is reached: by what it names, or by every iSCSI listener.
fn settle_portal_groups(target: &mut Target, state: &mut ServedState) -> ChangeOutcome {
    if target.portal_groups.is_empty() {
        target.portal_groups = vec![state.all_portals()];
        state.everywhere.insert(target.name.clone());
    } else {
        check_portal_groups(&target.portal_groups, state)?;
        state.everywhere.remove(&target.name);
    }
    // A listener that is to be opened is then in the groups that are named now.
    for gone in state.gone.values_mut() {
        gone.groups.retain(|(of, _)| *of != target.name);
        for group in &mut target.portal_groups {
            if group.portals.contains(&gone.number) {
                group.portals.retain(|number| *number != gone.number);
                gone.groups.push((target.name.clone(), group.tag));
            }
        }
    }
    Ok(())
}

fn check_portal_groups(groups: &[PortalGroup], state: &ServedState) -> ChangeOutcome {
    let invalid = |text: String| Err(ChangeError::Invalid(text));
    for (at, group) in groups.iter().enumerate() {
        let tag = group.tag;
        if tag == 0 || groups[..at].iter().any(|other| other.tag == tag) {
            return invalid(format!(
                "the tag of a portal group is from 1 to 65535 and of one group, not {tag}"
            ));
        }
        for (place, number) in group.portals.iter().enumerate() {
            let protocol = state.protocol_to_be(*number);
            if protocol.is_none_or(|protocol| matches!(protocol, Protocol::Nfs | Protocol::Nbd)) {
                return invalid(format!(
                    "there is no iSCSI or NVMe/TCP listener with number {number}"
                ));
            }
            let is_taken = groups[..at]
                .iter()
                .any(|other| other.portals.contains(number))
                || group.portals[..place].contains(number);
            if is_taken {
                return invalid(format!("listener {number} is in a portal group already"));
            }
        }
    }
    Ok(())
}

/// The mode parameters that units of a target begin with.
fn modes_of(spec: &IscsiTargetSpec) -> Modes {
    let available = spec.space_warning_bytes.map(Threshold::at_bytes);
    Modes {
        thresholds: Thresholds {
            available: available.unwrap_or_default(),
            ..Thresholds::default()
        },
        ..Modes::default()
    }
}

/// Checks a new logical unit of a target and puts its volume there.
fn place_lun(
    state: &ServedState,
    places: &mut Targets,
    name: &str,
    lun: &LunSpec,
) -> ChangeOutcome {
    check::lun(lun.lun.into()).map_err(ChangeError::Invalid)?;
    check::ana_group(lun.ana_group.into()).map_err(ChangeError::Invalid)?;
    if places.has_place(name, lun.lun) {
        let text = format!("{} of {name}", lun.lun);
        return Err(ChangeError::Exists("LUN", text));
    }
    let volume = state.free_volume(&lun.volume)?.clone();
    if places.users(&volume).iter().any(|(user, _)| user == name) {
        let text = format!("volume \"{}\" is there already in {name}", lun.volume);
        return Err(ChangeError::Invalid(text));
    }
    places.place(name, lun.lun, lun.ana_group, volume);
    Ok(())
}

/// A target to be changed.
fn known(registry: &::iscsi::Registry, name: &str) -> Result<Arc<Target>, ChangeError> {
    let found = registry.target(&::iscsi::normalize(name));
    let found = found.ok_or_else(|| ChangeError::Unknown("target", name.to_owned()))?;
    Ok(found.clone())
}

impl Shared {
    /// SET TARGET PORT GROUPS of a unit: the listeners of each portal group get the state
    /// for its ANA group, as an administrator would set it. One after the other, then
    /// `then`.
    pub(crate) fn set_states(
        self: &Arc<Self>,
        target: &str,
        lun: u16,
        states: &[(u16, AccessState)],
        then: StatesSet,
    ) {
        self.make(self.ana_changes(target, lun, states), then);
    }

    fn make(self: &Arc<Self>, mut changes: Vec<Change>, then: StatesSet) {
        let Some(change) = changes.pop() else {
            return then(Ok(()));
        };
        let next = move |shared: &Arc<Shared>, outcome: ChangeOutcome| match outcome {
            Err(error) => then(Err(error.to_string())),
            // The next may block.
            Ok(()) => shared.blocking(About::Target, move |shared| shared.make(changes, then)),
        };
        self.change(change, Box::new(next));
    }

    /// The changes that give target port groups of a unit these states; the last
    /// one first.
    fn ana_changes(&self, target: &str, lun: u16, set: &[(u16, AccessState)]) -> Vec<Change> {
        let portals: Vec<(Vec<u16>, AccessState)> = {
            let registry = self.iscsi.registry();
            let Some(target) = registry.target(target) else {
                return Vec::new();
            };
            let groups = set.iter().filter_map(|(tag, state)| {
                let group = target
                    .portal_groups
                    .iter()
                    .find(|group| group.tag == *tag)?;
                Some((group.portals.clone(), *state))
            });
            groups.collect()
        };
        let luns = self.iscsi.places().luns(target);
        let Some((.., group)) = luns.into_iter().find(|(known, ..)| *known == lun) else {
            return Vec::new();
        };
        let state = self.state();
        let changes = portals.into_iter().rev().filter_map(|(numbers, access)| {
            // One of them stands for all of its portal group.
            let mut listeners = numbers.iter().filter_map(|n| state.listeners.get(n));
            Some(Change::SetAna {
                nqn: target.to_owned(),
                listener: Some(listeners.next()?.spec.address),
                group,
                state: ana_state(access),
            })
        });
        changes.collect()
    }
}
