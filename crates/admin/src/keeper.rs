//! What keeps the document over a restart: its file, or the state folder.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf, absolute};

use api::{AuditVerified, Document, DocumentSource, Generation, HistoryEntry, Holds, RequestKey};
use control::{BUILT_IN, lasting_place};
use rustix::fs::{Access, AtFlags, CWD, StatxAttributes, StatxFlags, accessat, statx};

use crate::audit::Audit;
use crate::generations::Generations;
use crate::refused::NotApplied;
use crate::state::{name_of_document, usual_folder};

/// Where a document comes from, and where its generations are.
#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    /// As it was named.
    place: PathBuf,
    /// The file. `None`: what weft has made itself, or what came from a pipe.
    file: Option<PathBuf>,
    source: DocumentSource,
    /// The folder of its generations, or why there can be none, and what to do.
    folder: Result<PathBuf, String>,
}

/// What has the document at the next start.
#[derive(Clone, Debug)]
pub(crate) enum Holder {
    /// A file, by its real path.
    File(PathBuf),
    /// The last generation; why no file has it.
    Generation(String),
    /// Nothing; why.
    Nothing(String),
}

impl Keeper {
    /// Of a file, or of what goes by a name; `state`: the folder that the configuration names.
    pub fn new(file: Option<&Path>, own_name: &str, state: Option<&Path>) -> Keeper {
        let named = file.map(|file| absolute(file).unwrap_or_else(|_| file.to_owned()));
        let lasting = named.as_deref().and_then(lasting_place);
        let state = match state {
            Some(folder) => Ok(folder.to_owned()),
            None => usual_folder(),
        };
        let state = state.map_err(|why| format!("{why}: name a folder in `[admin] state`"));
        let name = match (&named, &lasting) {
            (None, _) => Ok(own_name.to_owned()),
            (Some(_), Some(file)) => {
                let real = file.canonicalize();
                Ok(name_of_document(real.as_deref().unwrap_or(file)))
            }
            (Some(_), None) => Err(
                "the configuration came from a pipe, which nothing is written \
                                    back to: start weft with a file"
                    .to_owned(),
            ),
        };
        let folder = name.and_then(|name| Ok(state?.join("documents").join(name)));
        let source = match (&named, &lasting) {
            (_, Some(_)) => DocumentSource::File,
            (Some(_), None) => DocumentSource::Pipe,
            (None, None) if own_name == BUILT_IN => DocumentSource::BuiltIn,
            (None, None) => DocumentSource::Options,
        };
        Keeper {
            source,
            place: named.unwrap_or_else(|| PathBuf::from(own_name)),
            file: lasting,
            folder,
        }
    }

    pub fn place(&self) -> &Path {
        &self.place
    }

    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    pub fn folder(&self) -> &Result<PathBuf, String> {
        &self.folder
    }

    /// As it is now: a file system may be mounted anew.
    pub fn holder(&self) -> Holder {
        let why = match &self.file {
            None => "no file was named".to_owned(),
            Some(file) => match replaceable(file) {
                Ok(real) => return Holder::File(real),
                Err(why) => format!("{} cannot be replaced: {why}", file.display()),
            },
        };
        match &self.folder {
            Ok(_) => Holder::Generation(why),
            Err(nowhere) => Holder::Nothing(nowhere.clone()),
        }
    }

    /// The generations that are on the disk.
    fn generations(&self) -> Option<Generations> {
        let folder = self.folder.as_deref().ok()?;
        Some(Generations::at(folder))
    }

    /// What made each of them, or why that cannot be read; the latest at the end.
    pub fn history(&self) -> Vec<HistoryEntry> {
        let Some(all) = self.generations() else {
            return Vec::new();
        };
        let numbers = all.numbers().unwrap_or_default().into_iter();
        let told = numbers.map(|number| match all.record(number) {
            Ok(record) => HistoryEntry::Made(Box::new(record)),
            Err(damaged) => HistoryEntry::Damaged {
                generation: number,
                damaged,
            },
        });
        told.collect()
    }

    /// One of them, and its text.
    pub fn read(&self, number: u64) -> Result<(Generation, String), NotApplied> {
        let all = self.generations().filter(|all| all.path(number).exists());
        let all = all.ok_or(NotApplied::NoGeneration(number))?;
        all.read(number)
            .map_err(|why| NotApplied::NotKept(vec![why]))
    }

    /// The one that the same request has made.
    pub fn answered(&self, request: Option<&RequestKey>) -> Result<Option<Generation>, NotApplied> {
        let (Some(request), Some(all)) = (request, self.generations()) else {
            return Ok(None);
        };
        let numbers = all.numbers().unwrap_or_default().into_iter().rev();
        let mut made = numbers.filter_map(|number| all.record(number).ok());
        let same = made.find(|made| made.request.as_ref().is_some_and(|r| r.key == request.key));
        match same {
            Some(made) if made.request.as_ref() != Some(request) => {
                Err(NotApplied::KeyReused(made.generation))
            }
            same => Ok(same),
        }
    }

    /// What the audit has.
    pub fn audit(&self) -> Result<api::Audit, NotApplied> {
        let Some(all) = self.generations() else {
            let records = Vec::new();
            return Ok(api::Audit {
                file: None,
                records,
            });
        };
        let audit = Audit::of(all.folder());
        let records = audit.records().map_err(|error| unread(&audit, &error))?;
        let file = Some(audit.path().display().to_string());
        Ok(api::Audit { file, records })
    }

    /// Whether it is as it was written.
    pub fn verify_audit(&self) -> Result<AuditVerified, NotApplied> {
        let Some(all) = self.generations() else {
            return Ok(AuditVerified::default());
        };
        let audit = Audit::of(all.folder());
        audit.verify(&all).map_err(|error| unread(&audit, &error))
    }

    /// As answers tell it.
    pub fn told(&self, generation: u64) -> Document {
        let path = |path: &Path| path.display().to_string();
        let (holds, why) = match self.holder() {
            Holder::File(_) => (Holds::File, None),
            Holder::Generation(why) => (Holds::Generation, Some(why)),
            Holder::Nothing(why) => (Holds::Nothing, Some(why)),
        };
        Document {
            file: self.file.as_deref().map(path),
            source: self.source,
            folder: self.folder.as_deref().ok().map(path),
            generation,
            holds,
            why,
        }
    }
}

fn unread(audit: &Audit, error: &std::io::Error) -> NotApplied {
    NotApplied::NotKept(vec![format!("{}: {error}", audit.path().display())])
}

/// The real path of a file that another can take the place of, with its mode and owner.
fn replaceable(file: &Path) -> Result<PathBuf, String> {
    let told = |error: std::io::Error| error.to_string();
    let real = file.canonicalize().map_err(told)?;
    let there = fs::metadata(&real).map_err(told)?;
    let user = rustix::process::geteuid();
    if !user.is_root() && there.uid() != user.as_raw() {
        return Err(format!("it belongs to uid {}", there.uid()));
    }
    let attributes = statx(CWD, &real, AtFlags::empty(), StatxFlags::BASIC_STATS);
    let attributes = attributes
        .map_err(|error| told(error.into()))?
        .stx_attributes;
    if attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Err("it is mounted by itself: mount its folder".to_owned());
    }
    if attributes.contains(StatxAttributes::IMMUTABLE) {
        return Err("it is immutable (chattr +i)".to_owned());
    }
    let folder = real.parent().unwrap_or(Path::new("/"));
    for (path, access) in [
        (&*real, Access::WRITE_OK),
        (folder, Access::WRITE_OK | Access::EXEC_OK),
    ] {
        accessat(CWD, path, access, AtFlags::EACCESS)
            .map_err(|error| format!("{}: {}", path.display(), told(error.into())))?;
    }
    Ok(real)
}
