//! Changes of file systems and exports.

use nfsd::exports::check_path;
use serve_nfs::{FileSystemKind, OwnMail};
use store::fs::FileSystem;

use super::*;
use crate::state::{ServedState, set_quotas};
use engine::About;

impl Shared {
    pub(super) fn add_file_system(&self, spec: &FileSystemSpec) -> Result<Left, ChangeError> {
        check::file_system_name(&spec.name).map_err(ChangeError::Invalid)?;
        if self.state().file_system(&spec.name).is_some() {
            return Err(exists(&spec.name));
        }
        let opened = serve_nfs::files::open(spec, self.nfs.wall.time(0));
        let fs = opened.map_err(ChangeError::FileSystem)?;
        self.state().add_file_system(fs)?;
        if matches!(spec.kind, FileSystemKind::Dir { .. }) && !self.nfs.has_records() {
            tracing::warn!(
                file_system = spec.name,
                "NFS clients lose the locks and open files that they will have here at the next \
                 restart, because weft has kept nothing of them since its start: restart it \
                 before they use this"
            );
        }
        Ok(Left::Nothing)
    }

    pub(super) fn set_quotas(&self, quotas: &[QuotaSpec]) -> Result<Left, ChangeError> {
        let now = self.nfs.wall.time(0);
        let state = self.state();
        let (file_systems, before) = (state.file_systems.clone(), state.quotas.clone());
        // Trees that come are gone through.
        drop(state);
        set_quotas(&file_systems, (&before, quotas), now)?;
        self.state().quotas = quotas.to_vec();
        Ok(Left::Nothing)
    }

    pub(super) fn remove_file_system(&self, name: &str) -> Result<Left, ChangeError> {
        let mut state = self.state();
        let fs = known(&state, name)?;
        let mut exports = state.exports.iter();
        if let Some(export) = exports.find(|export| export.what.file_system() == Some(name)) {
            return Err(ChangeError::Exported(name.to_owned(), export.path.clone()));
        }
        state.file_systems.retain(|other| !Arc::ptr_eq(other, &fs));
        drop(state);
        let close = move |shared: &Arc<Shared>, done: ChangeDone| {
            // What a large one has takes a while to give back.
            shared.blocking(About::state(&fs), move |shared| {
                wait_for_readers(&fs);
                drop(fs);
                done(shared, Ok(()));
            });
        };
        Ok(Left::More(Box::new(close)))
    }

    pub(super) fn add_export(&self, spec: ExportSpec) -> Result<Left, ChangeError> {
        let state = self.state();
        if state.exports.iter().any(|other| other.path == spec.path) {
            return Err(ChangeError::Exists("export", spec.path));
        }
        let mut list = state.exports.clone();
        list.push(spec);
        self.export(state, list, None)
    }

    pub(super) fn remove_export(&self, path: &str) -> Result<Left, ChangeError> {
        let state = self.state();
        let at = place(&state, path)?;
        let mut list = state.exports.clone();
        let gone = list.remove(at);
        let fs = fs_of(&state, &gone)?;
        self.export(state, list, fs)
    }

    pub(super) fn set_export(&self, spec: ExportSpec) -> Result<Left, ChangeError> {
        let state = self.state();
        let at = place(&state, &spec.path)?;
        let mut list = state.exports.clone();
        if list[at].what.file_system() != spec.what.file_system() {
            let why = format!("{} exports something else: remove it first", spec.path);
            return Err(ChangeError::Invalid(why));
        }
        let fs = fs_of(&state, &spec)?;
        list[at] = spec;
        self.export(state, list, fs)
    }

    /// From now on these are the exports; it is true when nothing that began
    /// before is left on `fs`, where less is allowed than before.
    fn export(
        &self,
        mut state: std::sync::MutexGuard<'_, ServedState>,
        list: Vec<ExportSpec>,
        fs: Option<Arc<dyn FileSystem>>,
    ) -> Result<Left, ChangeError> {
        let exports = state.exports_of(&list, self.nfs.wall.time(0))?;
        state.exports = list;
        drop(state);
        Ok(Left::More(Box::new(move |shared, done| {
            let then = shared.clone();
            let then = Box::new(move |()| {
                let shared = &then;
                let scope = fs.map_or(Scope::Mail, Scope::Files);
                shared.fence(scope, move |shared| done(shared, Ok(())));
            });
            shared.nfs.send(0, OwnMail::Exports(exports, then));
        })))
    }

    pub(super) fn evict_client(&self, id: u64) -> Left {
        Left::More(Box::new(move |shared, done| {
            let then = shared.clone();
            let then = Box::new(move |was_there: bool| {
                let shared = &then;
                let unknown = || ChangeError::Unknown("NFS client", format!("{id:#x}"));
                done(shared, was_there.then_some(()).ok_or_else(unknown));
            });
            shared.nfs.send(0, OwnMail::Evict(id, then));
        }))
    }
}

fn exists(name: &str) -> ChangeError {
    ChangeError::Exists("file system", format!("\"{name}\""))
}

fn known(state: &ServedState, name: &str) -> Result<Arc<dyn FileSystem>, ChangeError> {
    let fs = state.file_system(name).cloned();
    fs.ok_or_else(|| ChangeError::Unknown("file system", format!("\"{name}\"")))
}

/// The file system of an export, if it has one.
fn fs_of(
    state: &ServedState,
    spec: &ExportSpec,
) -> Result<Option<Arc<dyn FileSystem>>, ChangeError> {
    let name = spec.what.file_system();
    name.map(|name| known(state, name)).transpose()
}

fn place(state: &ServedState, path: &str) -> Result<usize, ChangeError> {
    check_path(path).map_err(|why| ChangeError::Invalid(why.to_string()))?;
    let mut exports = state.exports.iter();
    let at = exports.position(|export| export.path == path);
    at.ok_or_else(|| ChangeError::Unknown("export", path.to_owned()))
}
