//! What a load on files of an NFS server needs: it is made before, and taken away after.

use host::nfs::{Access, Client, ClientError, Create, Handle, NfsAddress, Open, Params, Slots};
use random::Random;
use reactor::EpollDriver;
use wire::nfs4::{nfs_ftype4, nfsstat4, sessionid4, stable_how4};

use super::args::PerfArgs;
use super::device::Device;
use super::job::JobPlan;
use super::line::LinePlan;
use super::nfs::{NfsPlan, NfsWork};
use super::report::TargetInfo;
use super::workload::Rw;
use super::{admin_driver, unique};
use crate::nfs_client::no_path;

/// Bytes of a file where the user has not given a size, if there is room for twice as
/// much.
const SIZE_DEFAULT: u64 = 256 << 20;
/// Bytes that are written at a time before the load.
const LAYOUT_BYTES: u32 = 1 << 20;
/// The least that `--verify` can stamp.
const VERIFY_BYTES_MIN: u64 = 512;

/// A client that keeps what a load needs.
pub(super) struct Mount {
    client: Client<EpollDriver>,
    params: Params,
    /// The file that is read and written.
    open: Option<Open>,
    has_written: bool,
    /// What was made for the load, in the order in which it is removed.
    made: Vec<(Handle, String)>,
    sessions: Vec<sessionid4>,
}

/// What a path leads to.
enum PathFound {
    Directory(Handle),
    /// A file of so many bytes.
    File(Handle, String, u64),
    /// Nothing, but its directory is there.
    Nothing(Handle, String),
}

/// Connects to the server of one URL, makes what the load needs, and plans its
/// jobs: `first` is the number of the first.
pub(super) fn mount(
    args: &PerfArgs,
    address: &NfsAddress,
    first: u32,
) -> Result<(Mount, TargetInfo, Vec<JobPlan>), String> {
    let mut params = args.nfs_client.params(address)?;
    if let Some(rdma) = &mut params.rdma {
        rdma.crc = args.mpa_crc();
    }
    let mount = Mount::connect(address, params);
    let mut mount = mount.map_err(|error| args.nfs_client.no_client(address, &error))?;
    match mount.plan(args, address, first) {
        Ok((target, jobs)) => Ok((mount, target, jobs)),
        Err(error) => {
            // What went wrong first is what is told.
            let _ = mount.end();
            Err(format!("{}: {error}", address.socket))
        }
    }
}

fn error_text(error: ClientError) -> String {
    error.to_string()
}

impl Mount {
    fn connect(address: &NfsAddress, mut params: Params) -> Result<Mount, ClientError> {
        let client = Client::connect(admin_driver()?, address.socket, params.clone())?;
        params.minor = client.minor();
        Ok(Mount {
            client,
            params,
            open: None,
            has_written: false,
            made: Vec::new(),
            sessions: Vec::new(),
        })
    }

    fn plan(
        &mut self,
        args: &PerfArgs,
        address: &NfsAddress,
        first: u32,
    ) -> Result<(TargetInfo, Vec<JobPlan>), String> {
        let found = self.find(&address.path);
        let found = found.map_err(|error| no_path(&mut self.client, &address.path, &error))?;
        let (device, work) = match args.rw.is_metadata() {
            false => self.file(args, found)?,
            true => self.names(args, found)?,
        };
        let jobs = u64::from(args.numjobs);
        let areas = match args.rw.is_metadata() {
            false => args.job_areas(&device, jobs)?,
            true => vec![(0, 1); jobs as usize],
        };
        let unique = unique(&self.params.identity.verifier);
        let slots = self.slots(args)?;
        let plans = areas.into_iter().zip(slots).zip(first..);
        let plans = plans.map(|((area, slots), number)| {
            let work = match &work {
                NfsWork::Create(directory, clientid, _) => {
                    NfsWork::Create(directory.clone(), *clientid, number)
                }
                work => work.clone(),
            };
            let plan = NfsPlan {
                to: address.socket,
                params: self.params.clone(),
                slots,
                work,
                bs: args.bs as u32,
            };
            JobPlan::new(args, LinePlan::Nfs(Box::new(plan)), &device, area, unique)
        });
        let path = format!("/{}", address.path.join("/"));
        let over = if address.is_rdma { " by RDMA" } else { "" };
        let model = format!("NFSv4.{}{over}", self.params.minor);
        let plans = plans.collect();
        Ok((
            TargetInfo::file(address.socket, path, &device, &model),
            plans,
        ))
    }

    /// What a path leads to.
    fn find(&mut self, path: &[String]) -> Result<PathFound, ClientError> {
        let names = |path: &[String]| path.to_vec();
        let all = names(path);
        let found = self.client.lookup(all.iter().map(String::as_str));
        let Some((name, parents)) = path.split_last() else {
            return found.map(PathFound::Directory);
        };
        let mut parent = || self.client.lookup(parents.iter().map(String::as_str));
        match found {
            Err(error) if error.status() == Some(nfsstat4::NFS4ERR_NOENT) => {
                Ok(PathFound::Nothing(parent()?, name.clone()))
            }
            Err(error) => Err(error),
            Ok(handle) => {
                let parent = parent()?;
                let attributes = self.client.attributes(&handle)?;
                match attributes.kind {
                    Some(nfs_ftype4::NF4DIR) => Ok(PathFound::Directory(handle)),
                    _ => Ok(PathFound::File(
                        parent,
                        name.clone(),
                        attributes.size.unwrap_or(0),
                    )),
                }
            }
        }
    }

    /// Name of what is made where the user has not given one.
    fn name(&self) -> String {
        format!("weft-perf-{:08x}", unique(&self.params.identity.verifier))
    }

    /// The file of a load of reads and writes, as long as it must be.
    fn file(&mut self, args: &PerfArgs, found: PathFound) -> Result<(Device, NfsWork), String> {
        if args.verify.is_some() && args.bs < VERIFY_BYTES_MIN {
            return Err(format!(
                "--verify needs a --bs of {VERIFY_BYTES_MIN} bytes at least"
            ));
        }
        if args.nrfiles.is_some() {
            return Err("--nrfiles is for --rw getattr and readdir".into());
        }
        self.has_written = args.rw.writes(args.rwmixread);
        let (parent, name, size, create) = match found {
            PathFound::Directory(_) if args.verify.is_some() && !self.has_written => {
                return Err("--verify of reads needs a file that such a load has written".into());
            }
            PathFound::Directory(parent) => {
                let name = self.name();
                self.made.push((parent.clone(), name.clone()));
                (parent, name, 0, Create::Guarded)
            }
            PathFound::File(parent, name, size) => (parent, name, size, Create::No),
            PathFound::Nothing(..) if args.size.is_none() => {
                return Err("there is no such file: to have it made, say its --size".into());
            }
            PathFound::Nothing(parent, name) => (parent, name, 0, Create::Guarded),
        };
        let access = match self.has_written || create != Create::No {
            true => Access::Both,
            false => Access::Read,
        };
        let open = self.client.open((&parent, &name), (access, create), false);
        let open = open.map_err(error_text)?;
        let handle = self.client.handle(&open).clone();
        let attributes = self.client.attributes(&handle).map_err(error_text)?;
        let wanted = match (args.size, size) {
            (Some(wanted), _) => args.offset + wanted,
            (None, 0) => SIZE_DEFAULT.min(attributes.space_avail.unwrap_or(u64::MAX) / 2),
            (None, size) => size,
        };
        if wanted > size && access == Access::Both {
            let most = self.max_io_bytes([attributes.write_max]);
            self.lay_out(&open, (size, wanted), most)
                .map_err(error_text)?;
        }
        let stateid = self.client.stateid(&open);
        self.open = Some(open);
        let is_there = if access == Access::Both {
            wanted.max(size)
        } else {
            size
        };
        let most = self.max_io_bytes([attributes.read_max, attributes.write_max]);
        Ok((Device::file(is_there, most), NfsWork::File(handle, stateid)))
    }

    /// Bytes of one READ or WRITE, where a file has these limits.
    fn max_io_bytes<const N: usize>(&self, limits: [Option<u64>; N]) -> u64 {
        let of_session = u64::from(self.client.io_bytes_max());
        limits.into_iter().flatten().fold(of_session, u64::min)
    }

    /// Writes all of a file from `size` to `wanted`, so that no load meets a hole;
    /// at most `most` bytes at a time.
    fn lay_out(
        &mut self,
        open: &Open,
        (size, wanted): (u64, u64),
        most: u64,
    ) -> Result<(), ClientError> {
        let most = most.min(u64::from(LAYOUT_BYTES));
        let mut random = Random::new(1);
        let words = (0..LAYOUT_BYTES / 8).flat_map(|_| random.next_u64().to_le_bytes());
        let bytes: Vec<u8> = words.collect();
        let mut at = size;
        while at < wanted {
            let len = (wanted - at).min(most) as usize;
            let data = (&bytes[..len], stable_how4::UNSTABLE4);
            let done = self.client.write(open, at, data)?;
            if done.count == 0 {
                return Err(ClientError::Unusable("the server writes nothing".into()));
            }
            at += u64::from(done.count);
        }
        let handle = self.client.handle(open).clone();
        self.client.commit(&handle).map(drop)
    }

    /// What a load of names and attributes is on.
    fn names(&mut self, args: &PerfArgs, found: PathFound) -> Result<(Device, NfsWork), String> {
        if args.verify.is_some() || args.size.is_some() {
            return Err("--verify and --size are for what is in files".into());
        }
        if args.rw == Rw::Create && args.nrfiles.is_some() {
            return Err("--nrfiles is for --rw getattr and readdir".into());
        }
        let device = Device::file(0, 0);
        let (directory, is_file) = match found {
            PathFound::Directory(directory) => (directory, false),
            PathFound::File(parent, name, _)
                if args.rw == Rw::Getattr && args.nrfiles.is_none() =>
            {
                let open = self
                    .client
                    .open((&parent, &name), (Access::Read, Create::No), false);
                let open = open.map_err(error_text)?;
                let handle = self.client.handle(&open).clone();
                self.open = Some(open);
                (handle, true)
            }
            PathFound::File(..) => return Err("that is no directory".into()),
            PathFound::Nothing(..) => return Err("there is no such directory".into()),
        };
        let is_own = !is_file && (args.rw == Rw::Create || args.nrfiles.is_some());
        let mut handles = Vec::new();
        let directory = match is_own {
            false => directory,
            true => {
                let name = self.name();
                let made = self.client.create_directory(&directory, &name);
                self.made.push((directory, name));
                let made = made.map_err(error_text)?;
                for number in 0..args.nrfiles.unwrap_or(0) {
                    handles.push(self.make_file(&made, number).map_err(error_text)?);
                }
                made
            }
        };
        if handles.is_empty() {
            handles.push(directory.clone());
        }
        let work = match args.rw {
            Rw::Create => {
                let attributes = self.client.attributes(&directory).map_err(error_text)?;
                let most = self.max_io_bytes([attributes.write_max]);
                if args.bs == 0 || args.bs > most {
                    return Err(format!("--bs is from 1 to {most} bytes, one WRITE"));
                }
                NfsWork::Create(directory, self.client.clientid(), 0)
            }
            Rw::Getattr => NfsWork::Getattr(handles.into()),
            _ => NfsWork::Readdir(directory),
        };
        Ok((device, work))
    }

    /// An empty file of a load, removed at its end.
    fn make_file(&mut self, directory: &Handle, number: u32) -> Result<Handle, ClientError> {
        let name = format!("file-{number}");
        let how = (Access::Write, Create::Guarded);
        let open = self.client.open((directory, &name), how, false)?;
        let handle = self.client.handle(&open).clone();
        // What is in a directory goes before it does.
        self.made
            .insert(self.made.len() - 1, (directory.clone(), name));
        self.client.close_file(open)?;
        Ok(handle)
    }

    /// Slots for each job: those of a session are shared by as many jobs as they
    /// suffice for.
    fn slots(&mut self, args: &PerfArgs) -> Result<Vec<Slots>, String> {
        let each = u32::from(args.iodepth);
        let mut jobs = Vec::new();
        while jobs.len() < usize::from(args.numjobs) {
            let left = u32::from(args.numjobs) - jobs.len() as u32;
            let mut session = self.client.more_slots(left * each).map_err(error_text)?;
            self.sessions.push(session.session());
            let each = each.min(session.count() as u32);
            let its = std::iter::from_fn(|| session.split(each));
            jobs.extend(its.take(left as usize));
        }
        Ok(jobs)
    }

    /// Keeps the lease.
    pub(super) fn keep_alive(&mut self) -> Result<(), ClientError> {
        self.client.renew()
    }

    /// Makes what was written stable, and takes away what was made.
    ///
    /// # Errors
    /// Where the server refuses; what could be is taken away.
    pub(super) fn end(mut self) -> Result<(), ClientError> {
        let mut ended = Ok(());
        let mut note = |result: Result<(), ClientError>| {
            if ended.is_ok() {
                ended = result;
            }
        };
        if let Some(open) = self.open.take() {
            if self.has_written {
                let handle = self.client.handle(&open).clone();
                note(self.client.commit(&handle).map(drop));
            }
            note(self.client.close_file(open));
        }
        for (parent, name) in std::mem::take(&mut self.made) {
            note(self.client.remove(&parent, &name).map(drop));
        }
        for session in std::mem::take(&mut self.sessions) {
            note(self.client.destroy_session(session));
        }
        note(self.client.disconnect());
        ended
    }
}
