//! From the text of a file to a configuration.

use server::Config;
use toml::de::DeTable;

use crate::by_name::ByName;
use crate::connection_policy::connection_policies;
use crate::schema::{FILE, ISCSI, NFS, NVME, POLICY, SCHEMA};
use crate::secret::{Secrets, SecretsRead};
use crate::snapshot_schedule::snapshot_schedules;
use crate::source::{Section, Sink};
use crate::targets::{self, Rest};
use crate::volume::volumes;
use crate::{Origin, Problem, admin, limit, listener, nbd, nfs, nvme, pattern, policy, quota};

/// All of a text that could be read, and what is wrong with the rest.
pub(crate) struct Parsed {
    pub config: Config,
    pub secrets: SecretsRead,
    pub problems: Vec<Problem>,
}

impl Parsed {
    /// # Errors
    /// Something is wrong.
    pub fn whole(self) -> Result<(Config, SecretsRead), Vec<Problem>> {
        match self.problems.is_empty() {
            true => Ok((self.config, self.secrets)),
            false => Err(self.problems),
        }
    }
}

pub(crate) fn parse(
    text: &str,
    origin: &Origin,
    before: &SecretsRead,
    allowed: &[usize],
) -> Parsed {
    let (mut table, errors) = DeTable::parse_recoverable(text);
    let sink = &mut Sink::new(text);
    add_errors(sink, &errors);
    pattern::expand(sink, table.get_mut());
    let file = Section::open(sink, SCHEMA, FILE, table.get_ref(), 0..0);
    let mut secrets = Secrets::new(origin, before);
    let nbd_tls = nbd::tls(sink, &file, origin.folder);
    let volumes = volumes(sink, &file, origin.folder, &secrets);
    let nvme = file.table(sink, SCHEMA, "nvme", NVME);
    let mut limits = policy::limits(sink, nvme.as_ref());
    let (listeners, is_whole) = listener::listeners(sink, &file);
    let subsystems = nvme::subsystems(sink, nvme.as_ref(), &secrets, (&volumes, &listeners));
    let section = file.table(sink, SCHEMA, "iscsi", ISCSI);
    let rest = Rest {
        volumes: &volumes,
        listeners: &listeners,
        subsystems: ByName::new(subsystems.iter().map(|spec| (spec.nqn.clone(), spec))),
    };
    let iscsi = targets::read(sink, section.as_ref(), &mut secrets, &rest);
    limits.scsi_io_bytes_max = iscsi.io_bytes_max;
    let nfs = file.table(sink, SCHEMA, "nfs", NFS);
    let files = nfs::read(sink, &file, nfs.as_ref(), (origin.folder, &listeners));
    let served = (nvme.as_ref(), section.as_ref(), &file);
    listener::reachable(sink, served, (&listeners, is_whole));
    let known = limit::Nameable {
        volumes: &volumes,
        exports: &files.exports,
        listeners: &listeners,
    };
    let rate_limits = limit::rate_limits(sink, &file, &known);
    let policy = file.table(sink, SCHEMA, "policy", POLICY);
    let policy = policy.as_ref();
    let cpus = policy::cpus(sink, policy, allowed);
    let config = Config {
        snapshot_schedules: snapshot_schedules(sink, &file, &volumes),
        connection_policies: connection_policies(sink, &file, &listeners),
        nbd_exports: nbd::exports(sink, &file, &volumes),
        nbd_tls,
        volumes: volumes.list,
        subsystems,
        iscsi_targets: iscsi.targets,
        iscsi_discovery: iscsi.discovery,
        quotas: quota::quotas(sink, &file, &files.file_systems),
        file_systems: files.file_systems,
        exports: files.exports,
        nfs: files.settings,
        listeners,
        referrals: listener::referrals(sink, nvme.as_ref()),
        psk_compat: policy::psk_compat(sink, nvme.as_ref()),
        backend: policy::backend(sink, policy),
        spin_us_max: policy::spin_us_max(sink, policy),
        placement: policy::placement(sink, policy),
        memory_max: policy::memory_max(sink, policy, cpus.len()),
        zero_copy_min_bytes: policy::zero_copy_min_bytes(sink, policy),
        registered_min_bytes: policy::registered_min_bytes(sink, policy),
        fast_path: policy::fast_path(sink, policy),
        cpus,
        start: policy::start(sink, policy),
        admin: admin::read(sink, &file, origin.folder),
        limits,
        rate_limits,
    };
    nfs::fits(sink, nfs.as_ref(), &config);
    Parsed {
        config,
        secrets: secrets.into_read(),
        problems: sink.take(),
    }
}

/// What the text has that is no TOML.
fn add_errors(sink: &mut Sink, errors: &[toml::de::Error]) {
    for error in errors {
        sink.add(&error.span().unwrap_or(0..0), error.message());
    }
}
