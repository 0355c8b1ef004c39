//! Changes of iSCSI targets: themselves, their logical units, who may use them
//! and how good their paths are.

use ::iscsi::{PortalGroup, Target};
use nvmf::AnaGroup;
use scsi::Modes;
use scsi::provisioning::{Threshold, Thresholds};

use super::namespaces::{busy, subsystem, unknown_volume};
use super::*;
use crate::config::Protocol;
use crate::state::State;

impl Shared {
    pub(super) fn add_target(&self, spec: &IscsiTargetSpec) -> Result<Left, ChangeError> {
        let change = self.insert_target(spec)?;
        Ok(self.dismiss_and_wait(change, Vec::new()))
    }

    /// Checks a new target and puts it in.
    pub(crate) fn insert_target(
        &self,
        spec: &IscsiTargetSpec,
    ) -> Result<::iscsi::Change, ChangeError> {
        let nvme = self.registry();
        let mut registry = self.iscsi();
        let mut target = checked(&spec.target)?;
        let name = target.name.clone();
        if registry.target(&name).is_some() {
            return Err(ChangeError::Exists("target", name));
        }
        let groups = match &spec.ana {
            Ana::Own(groups) => groups.clone(),
            Ana::Subsystem(nqn) => subsystem(&nvme, nqn)?.ana_groups,
        };
        for group in &groups {
            check::ana_group(group.id.into()).map_err(ChangeError::Invalid)?;
        }
        let mut state = self.state();
        if target.portal_groups.is_empty() {
            target.portal_groups = vec![state.all_portals()];
            state.everywhere.insert(name.clone());
        } else {
            check_portal_groups(&target.portal_groups, &state)?;
        }
        state.iscsi.set_ana(&name, spec.ana.clone());
        state.iscsi.set_default_modes(&name, modes_of(spec));
        for lun in &spec.luns {
            if let Err(error) = place_lun(&mut state, &name, lun) {
                state.forget_target(&name);
                return Err(error);
            }
        }
        // Nobody is logged in who would have to hear of it.
        state.iscsi.publish(&target, &groups);
        Ok(registry.replace_target(Arc::new(target)))
    }

    pub(super) fn remove_target(&self, name: &str) -> Result<Left, ChangeError> {
        let mut registry = self.iscsi();
        let name = known(&registry, name)?.name.clone();
        let change = registry.remove_target(&name);
        self.state().forget_target(&name);
        drop(registry);
        Ok(self.dismiss_and_wait(change, Vec::new()))
    }

    pub(super) fn add_lun(&self, name: &str, lun: &LunSpec) -> Result<Left, ChangeError> {
        let name = known(&self.iscsi(), name)?.name.clone();
        place_lun(&mut self.state(), &name, lun)?;
        Ok(self.widen_targets(vec![name]))
    }

    /// Sessions with targets allow more than before, and when all do, their
    /// initiators are told.
    fn widen_targets(&self, names: Vec<String>) -> Left {
        names.iter().for_each(|name| self.prepare_target(name));
        let tell = move |shared: &Arc<Shared>, done: Done| shared.tell_targets(&names, done);
        Left::Fence(Scope::Mail, Box::new(tell))
    }

    fn tell_targets(self: &Arc<Self>, names: &[String], done: Done) {
        names
            .iter()
            .for_each(|name| self.publish_target(name, None));
        self.fence(Scope::Mail, move |shared| done(shared, Ok(())));
    }

    pub(super) fn remove_lun(&self, name: &str, lun: u16) -> Result<Left, ChangeError> {
        let name = known(&self.iscsi(), name)?.name.clone();
        let mut state = self.state();
        if !state
            .iscsi
            .luns(&name)
            .iter()
            .any(|(known, ..)| *known == lun)
        {
            let text = format!("{lun} of {name}");
            return Err(ChangeError::Unknown("LUN", text));
        }
        let volume = state.iscsi.unplace(&name, lun);
        drop(state);
        self.publish_target(&name, None);
        let scope = Scope::Volumes(vec![volume.clone()]);
        let free = move |shared: &Arc<Shared>, done: Done| {
            shared.state().iscsi.free(&volume);
            drop(volume);
            shared.publish_target(&name, None);
            // Then no session holds the volume any more.
            shared.fence(Scope::Mail, move |shared| done(shared, Ok(())));
        };
        Ok(Left::Fence(scope, Box::new(free)))
    }

    pub(super) fn set_initiators(
        &self,
        name: &str,
        acl: &[InitiatorAcl],
    ) -> Result<Left, ChangeError> {
        let acl = check::acl(acl).map_err(ChangeError::Invalid)?;
        // Who sees less than before has nothing under way there at the end.
        let name = known(&self.iscsi(), name)?.name.clone();
        let luns = self.state().iscsi.luns(&name);
        let volumes = luns.into_iter().map(|(_, volume, _)| volume);
        let change = self.edit_target(&name, |target| target.acl = acl)?;
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
            .for_each(|packed| self.ask_to_leave(*packed));
        Ok(match closing.is_empty() {
            true => Left::Nothing,
            false => Left::fence(Scope::Connections(closing)),
        })
    }

    pub(super) fn set_discovery(&self, auth: Auth) -> Result<Left, ChangeError> {
        check::auth(&auth).map_err(ChangeError::Invalid)?;
        self.iscsi().set_discovery(auth);
        Ok(Left::Nothing)
    }

    /// Puts an edited target in the place of the one there is.
    fn edit_target(
        &self,
        name: &str,
        edit: impl FnOnce(&mut Target),
    ) -> Result<::iscsi::Change, ChangeError> {
        let mut registry = self.iscsi();
        let mut target = (*known(&registry, name)?).clone();
        edit(&mut target);
        let name = target.name.clone();
        let change = registry.replace_target(Arc::new(target));
        drop(registry);
        self.publish_target(&name, None);
        Ok(change)
    }

    /// Asks the initiators of connections to leave and closes them. The change
    /// is true when they are gone, and then nothing that began before is left on
    /// `volumes`.
    pub(super) fn dismiss_and_wait(
        &self,
        change: ::iscsi::Change,
        volumes: Vec<Arc<dyn Volume>>,
    ) -> Left {
        let closing = change.closing.iter();
        let closing: Vec<_> = closing
            .map(|packed| ConnectionRef::unpack(*packed))
            .collect();
        for packed in change.closing {
            self.dismiss(packed);
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
        let target = known(&self.iscsi(), name)?;
        let name = target.name.clone();
        let source = self.state().iscsi.ana_of(&name);
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
        let mut state = self.state();
        state.iscsi.set_ana(&name, Ana::Own(groups));
        let luns = state.iscsi.luns(&name);
        drop(state);
        if ana.is_accessible() {
            return Ok(self.widen_targets(vec![name]));
        }
        self.publish_target(&name, None);
        let members = luns.into_iter().filter(|(.., of)| *of == group);
        let volumes = members.map(|(_, volume, _)| volume).collect();
        Ok(Left::fence(Scope::Volumes(volumes)))
    }

    /// The listeners that have one state with this one for a subsystem: those of
    /// the portal groups of the targets that share its states.
    pub(super) fn together(&self, nqn: &str, number: u16) -> Vec<u16> {
        let registry = self.iscsi();
        let sharing = self.state().iscsi.sharing(nqn);
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
        let state = self.state();
        let targets = state.iscsi.sharing(nqn).into_iter();
        let luns = targets.flat_map(|name| state.iscsi.luns(&name));
        let members = luns.filter(|(.., of)| *of == group);
        members.map(|(_, volume, _)| volume).collect()
    }

    /// Every logical unit of the volume shows that it is smaller.
    pub(super) fn shrink_luns(&self, volume: &Arc<dyn Volume>, size_bytes: u64) {
        let names = self.set_block_count(volume, size_bytes);
        names
            .iter()
            .for_each(|name| self.publish_target(name, None));
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
        names.iter().for_each(|name| self.prepare_target(name));
        let left = left();
        Left::More(Box::new(move |shared, done| {
            let others = move |shared: &Arc<Shared>, outcome: Outcome| match outcome {
                Ok(()) => shared.tell_targets(&names, done),
                Err(error) => done(shared, Err(error)),
            };
            left.run(shared, Box::new(others));
        }))
    }

    fn set_block_count(&self, volume: &Arc<dyn Volume>, size_bytes: u64) -> Vec<String> {
        let blocks = size_bytes / u64::from(volume.info().block_bytes);
        self.state().iscsi.set_block_count(volume, blocks)
    }

    /// The portal of a number came or went: initiators are told of those that
    /// there are. One that comes back is in the portal groups that it was in,
    /// `back_in`, by target and tag. The change, and the targets that are to be
    /// published.
    pub(super) fn settle_portals(
        registry: &mut ::iscsi::Registry,
        state: &State,
        number: u16,
        back_in: &[(String, u16)],
    ) -> (::iscsi::Change, Vec<String>) {
        registry.set_portals(state.portals());
        let is_there = |number: &u16| state.listeners.contains_key(number);
        let mut change = ::iscsi::Change::default();
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
    pub(super) fn publish_edited(&self, change: ::iscsi::Change, targets: Vec<String>) {
        change
            .closing
            .iter()
            .for_each(|packed| self.dismiss(*packed));
        targets
            .iter()
            .for_each(|name| self.publish_target(name, None));
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

fn check_portal_groups(groups: &[PortalGroup], state: &State) -> Outcome {
    let invalid = |text: String| Err(ChangeError::Invalid(text));
    for (at, group) in groups.iter().enumerate() {
        let tag = group.tag;
        if tag == 0 || groups[..at].iter().any(|other| other.tag == tag) {
            return invalid(format!(
                "the tag of a portal group is from 1 to 65535 and of one group, not {tag}"
            ));
        }
        for (place, number) in group.portals.iter().enumerate() {
            let spec = state.listeners.get(number).map(|listener| &listener.spec);
            if spec.is_none_or(|spec| spec.protocol == Protocol::Nfs) {
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
fn place_lun(state: &mut State, name: &str, lun: &LunSpec) -> Outcome {
    check::lun(lun.lun.into()).map_err(ChangeError::Invalid)?;
    check::ana_group(lun.ana_group.into()).map_err(ChangeError::Invalid)?;
    if state.iscsi.has_place(name, lun.lun) {
        let text = format!("{} of {name}", lun.lun);
        return Err(ChangeError::Exists("LUN", text));
    }
    let volume = state.volume(&lun.volume);
    let volume = volume.ok_or_else(|| unknown_volume(&lun.volume))?.clone();
    if state.is_resizing(&volume) {
        return Err(busy(&lun.volume));
    }
    if state
        .iscsi
        .users(&volume)
        .iter()
        .any(|(user, _)| user == name)
    {
        let text = format!("volume \"{}\" is there already in {name}", lun.volume);
        return Err(ChangeError::Invalid(text));
    }
    state.iscsi.place(name, lun.lun, lun.ana_group, volume);
    Ok(())
}

/// A target to be changed.
fn known(registry: &::iscsi::Registry, name: &str) -> Result<Arc<Target>, ChangeError> {
    let found = registry.target(&::iscsi::normalize(name));
    let found = found.ok_or_else(|| ChangeError::Unknown("target", name.to_owned()))?;
    Ok(found.clone())
}
