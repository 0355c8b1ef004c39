//! Changes of volumes.

use faults::Fault;
use nvmf::Namespace;

use super::*;
use crate::state::{unknown_volume, volume_busy};
use engine::About;

impl Shared {
    /// Opens a volume that is to be added, and takes its name and its files, so that
    /// no other change can. What is below it may not answer: not under the lock of
    /// changes.
    pub(super) fn open_volume(&self, spec: &store::Spec) -> Result<Arc<dyn Volume>, ChangeError> {
        check::volume_name(&spec.name).map_err(ChangeError::Invalid)?;
        check::names(&spec.names).map_err(ChangeError::Invalid)?;
        self.expect_no_volume(&spec.name)?;
        let below = self.volumes_below(spec)?;
        self.take_files(spec)?;
        store::open_over(spec, below).map_err(|error| {
            self.state().files.remove(&spec.name);
            ChangeError::Open(error)
        })
    }

    /// The volumes that one is to be made of.
    fn volumes_below(&self, spec: &store::Spec) -> Result<Vec<Arc<dyn Volume>>, ChangeError> {
        let below = self.state().volumes_below(spec)?;
        below
            .iter()
            .try_for_each(|part| self.expect_unplaced(part))?;
        Ok(below)
    }

    fn expect_unplaced(&self, volume: &Arc<dyn Volume>) -> ChangeOutcome {
        let user = self.nvme.places().user(volume);
        let user = user.or_else(|| self.iscsi.places().user(volume));
        match user.or_else(|| self.nbd.exports().user(volume)) {
            Some(user) => Err(ChangeError::InUse(volume.info().name.clone(), user)),
            None => Ok(()),
        }
    }

    /// Adds a volume that was opened for it. Meanwhile what it is made of may have been given
    /// to hosts.
    pub(super) fn add_volume(
        &self,
        spec: &store::Spec,
        volume: Arc<dyn Volume>,
    ) -> Result<Left, ChangeError> {
        let name = spec.name.clone();
        let below = self.volumes_below(spec);
        let added = below.and_then(|_| self.state().add_volume(volume.clone()));
        if added.is_err() {
            self.state().files.remove(&name);
        }
        if added.is_ok() {
            self.take_back_legs(&volume);
            self.engine.run_upkeep();
        }
        added.map(|()| Left::Nothing)
    }

    /// Keeps the name and the files of a volume from others.
    pub(crate) fn take_files(&self, spec: &store::Spec) -> ChangeOutcome {
        // Looked up before the lock, which reactors take too.
        let files = check::files(spec).into_iter().map(|(_, path)| path);
        let files = files.collect();
        self.state().take_files(&spec.name, files)
    }

    fn expect_no_volume(&self, name: &str) -> ChangeOutcome {
        match self.state().volume(name) {
            Some(_) => Err(ChangeError::Exists("volume", format!("\"{name}\""))),
            None => Ok(()),
        }
    }

    pub(super) fn remove_volume(&self, name: &str) -> Result<Left, ChangeError> {
        let mut state = self.state();
        let at = (state.volumes.iter()).position(|volume| volume.info().name == name);
        let at = at.ok_or_else(|| unknown_volume(name))?;
        let volume = state.volumes[at].clone();
        self.expect_unplaced(&volume)?;
        let owner = volume.base().owner();
        // One that is being closed needs its name no more.
        if let Some(owner) = owner.filter(|owner| state.volume(owner).is_some()) {
            return Err(ChangeError::PartOf(name.to_owned(), owner));
        }
        if state.is_in_change(&volume) {
            return Err(volume_busy(name));
        }
        state.volumes.remove(at);
        state.files.remove(name);
        let name = name.to_owned();
        Ok(Left::More(Box::new(move |shared, done| {
            let last = volume.clone();
            let then = shared.clone();
            let flushed = Box::new(move |result: Result<(), store::Error>| {
                // What was asked of it is answered first: its parts are free when this is over.
                then.blocking(About::question(&last), move |shared| {
                    // Closing a large volume takes a while.
                    shared.blocking(About::state(&last), move |shared| {
                        wait_for_readers(&last);
                        drop(last);
                        done(shared, result.map_err(|e| ChangeError::Unsynced(name, e)));
                    });
                });
            });
            // What it does by itself ends.
            shared.engine.run_upkeep();
            shared.send(0, ShardMail::Run(volume, store::Io::Flush, flushed));
        })))
    }

    pub(super) fn resize_volume(
        &self,
        name: &str,
        size_bytes: u64,
        allow_shrink: bool,
    ) -> Result<Left, ChangeError> {
        let volume = self.state().volume(name).cloned();
        let volume = volume.ok_or_else(|| unknown_volume(name))?;
        if self.state().is_in_change(&volume) {
            return Err(volume_busy(name));
        }
        let info = volume.info();
        if !size_bytes.is_multiple_of(info.block_bytes.into()) {
            return Err(ChangeError::Resize(ResizeError::Size {
                size_bytes,
                block_bytes: info.block_bytes,
            }));
        }
        let shrinks = size_bytes != 0 && !info.read_only && size_bytes < volume.size_bytes();
        if !shrinks || !allow_shrink {
            // A volume refuses by itself to shrink where that is not allowed.
            let result = volume.resize(size_bytes, allow_shrink);
            result.map_err(ChangeError::Resize)?;
            let size_bytes = volume.size_bytes();
            self.nbd.republish_volume(&volume, size_bytes);
            let hosts = || self.allow_more(self.sizes(&volume, size_bytes));
            return Ok(self.grow_luns(&volume, size_bytes, hosts));
        }
        // Hosts see the end first, then what was under way behind it ends,
        // and only then is anything cut off.
        self.state().in_change.push(volume.clone());
        self.nbd.republish_volume(&volume, size_bytes);
        self.shrink_luns(&volume, size_bytes);
        let sizes = self.sizes(&volume, size_bytes);
        sizes.into_iter().for_each(|edit| self.allow_less(edit));
        let scope = Scope::Volumes(vec![volume.clone()]);
        let cut = move |shared: &Arc<Shared>, done: ChangeDone| {
            shared.blocking(About::state(&volume), move |shared| {
                let result = volume.resize(size_bytes, true);
                shared
                    .state()
                    .in_change
                    .retain(|v| !Arc::ptr_eq(v, &volume));
                let outcome = result.map_err(ChangeError::Resize);
                if outcome.is_ok() {
                    return done(shared, outcome);
                }
                // It has the size that it had.
                let size_bytes = volume.size_bytes();
                shared.nbd.republish_volume(&volume, size_bytes);
                let hosts = || shared.allow_more(shared.sizes(&volume, size_bytes));
                let back = shared.grow_luns(&volume, size_bytes, hosts);
                back.run(shared, Box::new(move |shared, _| done(shared, outcome)));
            });
        };
        Ok(Left::Fence(scope, Box::new(cut)))
    }

    pub(super) fn set_encryption(
        &self,
        name: &str,
        settings: &store::EncryptionSettings,
    ) -> Result<Left, ChangeError> {
        let volume = self.state().volume(name).cloned();
        let volume = volume.ok_or_else(|| unknown_volume(name))?;
        let Some(encryption) = volume.encryption() else {
            let text =
                format!("volume \"{name}\" is not encrypted, and becomes so only when it is new");
            return Err(ChangeError::Invalid(text));
        };
        let mut locked = self.volumes();
        locked.retain(|volume| volume.is_locked());
        encryption.follow(settings).map_err(|problem| {
            let volume = name.to_owned();
            ChangeError::Open(store::OpenError { volume, problem })
        })?;
        // It, and what is made of it.
        let unlocked = locked.iter().filter(|volume| !volume.is_locked());
        let edits = unlocked.flat_map(|volume| {
            let name = &volume.info().name;
            tracing::info!(event = "unlocked", volume = name, "the volume is unlocked");
            self.edits(volume, |namespace| namespace.is_ready = true)
        });
        let edits: Vec<Edit> = edits.collect();
        Ok(match edits.is_empty() {
            true => Left::Nothing,
            false => self.allow_more(edits),
        })
    }

    pub(super) fn set_snapshot_schedules(&self, schedules: Vec<SnapshotSchedule>) -> Left {
        self.state().snapshot_schedules = schedules;
        Left::Nothing
    }

    /// A mirror that has missed a leg of this name has it again.
    fn take_back_legs(&self, volume: &Arc<dyn Volume>) {
        let volumes = self.state().volumes.clone();
        for mirror in volumes.iter().filter_map(|volume| volume.as_mirror()) {
            if let Err(error) = mirror.take_back(volume) {
                tracing::error!(
                    leg = volume.info().name,
                    %error,
                    "a leg of a mirror is there again and cannot be taken: mend that, and start again"
                );
            }
        }
    }

    pub(super) fn set_mirror(
        &self,
        name: &str,
        of: &[String],
        resync_rate: u64,
    ) -> Result<Left, ChangeError> {
        let volume = self.state().volume(name).cloned();
        let volume = volume.ok_or_else(|| unknown_volume(name))?;
        let mirror = volume.as_mirror();
        let mirror = mirror.ok_or_else(|| ChangeError::NoMirror(name.to_owned()))?;
        let has = mirror.volumes();
        let legs = of.iter().map(|leg| {
            let served = self.state().volume(leg).cloned();
            // A leg that is not there is none of the volumes.
            let found = served.or_else(|| {
                let mut legs = has.iter();
                legs.find(|own| own.info().name == *leg).cloned()
            });
            found.ok_or_else(|| unknown_volume(leg))
        });
        let legs: Vec<Arc<dyn Volume>> = legs.collect::<Result<_, _>>()?;
        if let Some(leg) = legs.iter().find(|leg| self.state().is_in_change(leg)) {
            return Err(volume_busy(&leg.info().name));
        }
        let is_new = |leg: &&Arc<dyn Volume>| !has.iter().any(|old| Arc::ptr_eq(old, leg));
        legs.iter()
            .filter(is_new)
            .try_for_each(|leg| self.expect_unplaced(leg))?;
        let is_same =
            has.len() == legs.len() && !legs.iter().zip(&has).any(|(a, b)| !Arc::ptr_eq(a, b));
        if !is_same {
            let set = mirror.set_legs(legs);
            set.map_err(|error| ChangeError::Mirror(name.to_owned(), error))?;
        }
        mirror.set_resync_rate(resync_rate);
        self.engine.run_upkeep();
        Ok(Left::Nothing)
    }

    pub(super) fn set_scrub_rate(&self, name: &str, rate: u64) -> Result<Left, ChangeError> {
        let volume = self.state().volume(name).cloned();
        let volume = volume.ok_or_else(|| unknown_volume(name))?;
        if let Some(scrub) = volume.scrub() {
            scrub.set_rate(rate);
        }
        self.engine.run_upkeep();
        Ok(Left::Nothing)
    }

    pub(super) fn set_remote(&self, name: &str, place: &RemoteAt) -> Result<Left, ChangeError> {
        let volume = self.state().volume(name).cloned();
        let volume = volume.ok_or_else(|| unknown_volume(name))?;
        let Some(remote) = volume.remote() else {
            let text = format!("volume \"{name}\" is not on another machine");
            return Err(ChangeError::Invalid(text));
        };
        remote.follow(&**place);
        Ok(Left::Nothing)
    }

    /// What makes every subsystem that has the volume show how large it is.
    fn sizes(&self, volume: &Arc<dyn Volume>, size_bytes: u64) -> Vec<Edit> {
        let block_count = size_bytes / u64::from(volume.info().block_bytes);
        self.edits(volume, move |namespace| namespace.block_count = block_count)
    }

    /// What changes the namespaces of a volume in every subsystem that has it.
    fn edits(
        &self,
        volume: &Arc<dyn Volume>,
        edit: impl Fn(&mut Namespace) + Clone + Send + 'static,
    ) -> Vec<Edit> {
        let most = match faults::is(Fault::OneSubsystem) {
            true => 1,
            false => usize::MAX,
        };
        let users = self.nvme.places().users(volume).into_iter().take(most);
        let edits = users.map(|(nqn, nsid)| {
            let edit = edit.clone();
            let apply = move |subsystem: &mut Subsystem| {
                let mut list = subsystem.namespaces.to_vec();
                let of_volume = list.iter_mut().filter(|n| n.nsid == nsid);
                of_volume.for_each(&edit);
                subsystem.namespaces = list.into();
            };
            let apply = Box::new(apply);
            Edit { nqn, apply }
        });
        edits.collect()
    }
}
