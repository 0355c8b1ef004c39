//! Attributes, what they let one do, and extended ones (RFC 8276).

use std::net::SocketAddr;
use std::sync::Arc;

use auth::user::AccountKind;
use faults::Fault;
use nfs::attributes::{
    AskedAttributes, FreeSpace, NO_NAMES, Object, ReadOwner, SetAttributes, System, Values,
};
use nfs::server::files::WRITE;
use store::fs::access::{rights, told};
use store::fs::{
    self, Attr, Device, FileId, FsOp, Label, ObjectKind, Output, Rights, SetAttr, SetTime,
    SetXattr, Statfs, Time,
};
use wire::nfs4::{
    self, ACCESS4args, ACCESS4resok, GETATTR4args, LISTXATTRS4args, SETATTR4args, SETXATTR4args,
    VERIFY4args, XATTR4args, change_info4, component4, fattr4, labelformat_spec4, nfs_argop4,
    nfs_ftype4, nfs_opnum4, nfsstat4, nfstime4, sec_label4, setxattr_option4, stateid4,
};
use wire::xdr::{Encode, Opaque, pad};

use crate::acl;
use crate::call::{Ask, NextStep, OperationOutcome, QuestionBegun, RunningCall};
use crate::continuation::{Continuation, ThenAttributes};
use crate::holder::{ToShow, to_show};
use crate::names::{ANSWERED, change_info, file, set_attr};
use crate::peer::Peer;
use crate::pseudo::{PseudoPlace, View};
use crate::{Nfsd, locations, state};

fn ask_file_system<'a>(
    run: &mut RunningCall<'a>,
    op: FsOp<'_>,
    then: ThenAttributes,
) -> OperationOutcome<'a> {
    let then = Continuation::Attributes(then);
    run.ask_file_system(Ask {
        op,
        is_open: false,
        then,
    })
}

#[inline]
pub(crate) fn resume<'a>(
    run: &mut RunningCall<'a>,
    then: ThenAttributes,
    result: Result<Output, fs::Error>,
) -> OperationOutcome<'a> {
    let result = match (&then, result) {
        (ThenAttributes::Touched(_, Some(attr), _), Err(_)) => Ok(Output::Attr((**attr).clone())),
        (_, result) => result,
    };
    let output = run.done(result)?;
    if let Output::Attr(attr) = &output
        && let Some(view) = run.flow.view.take()
        && let Some(to_show) = to_show(&view, attr, run.time)
        && !faults::is(Fault::OldAttributes)
    {
        return touch(run, attr, to_show, view.size, then);
    }
    match (then, output) {
        (ThenAttributes::Touched(size, _, then), Output::Attr(attr)) => {
            let attr = Attr { size, ..attr };
            run.answered = Some((Continuation::Attributes(*then), Ok(Output::Attr(attr))));
            Ok(NextStep::Answered)
        }
        (ThenAttributes::Getattr(asked, room), Output::Attr(attr)) => {
            got_attr(run, asked, &attr, &room)
        }
        (ThenAttributes::Access(asked), Output::Attr(attr)) => tell_access(run, asked, &attr),
        (ThenAttributes::GetattrRoom(asked), Output::Statfs(stat)) => {
            let file = file(run.current()?);
            ask_file_system(
                run,
                FsOp::Getattr { file },
                ThenAttributes::Getattr(asked, room(&stat)),
            )
        }
        (ThenAttributes::VerifyRoom, Output::Statfs(stat)) => {
            let file = file(run.current()?);
            ask_file_system(
                run,
                FsOp::Getattr { file },
                ThenAttributes::Verify(room(&stat)),
            )
        }
        (ThenAttributes::Verify(room), Output::Attr(attr)) => verified(run, &attr, &room),
        (ThenAttributes::Setattr, Output::Attr(_)) => {
            let nfs_argop4::OP_SETATTR(args) = run.op() else {
                unreachable!("SETATTR asked");
            };
            run.ok(|to| args.obj_attributes.attrmask.encode(to))
        }
        (ThenAttributes::GetXattr, Output::Bytes(value)) => {
            let value: Opaque<'_, { nfs4::XATTR_BYTES_MAX as usize }> = Opaque(&value);
            run.ok(|to| value.encode(to))
        }
        (ThenAttributes::ChangeXattr, Output::Change(change)) => {
            let change: change_info4 = change_info(&change);
            run.ok(|to| change.encode(to))
        }
        (ThenAttributes::ListXattrs, Output::Listing(listing)) => list_names(run, &listing),
        _ => unreachable!("{ANSWERED}"),
    }
}

/// The client with a write delegation says what is to be set of its file, and its size.
fn touch<'a>(
    run: &mut RunningCall<'a>,
    attr: &Attr,
    to_show: ToShow,
    size: u64,
    then: ThenAttributes,
) -> OperationOutcome<'a> {
    let kept = (!to_show.is_modified).then(|| Box::new(attr.clone()));
    let op = FsOp::Setattr {
        file: file(run.current()?),
        set: to_show.set,
        guard: kept.as_ref().map(|attr| attr.changed),
    };
    run.ask_file_system(Ask {
        op,
        is_open: true,
        then: Continuation::Attributes(ThenAttributes::Touched(size, kept, Box::new(then))),
    })
}

/// Attributes of nothing in particular.
pub(crate) fn blank_attributes() -> Attr {
    Attr {
        file: FileId(0),
        kind: ObjectKind::Regular,
        mode: 0,
        acl: None,
        label: None,
        links: 1,
        uid: 0,
        gid: 0,
        device: Device::default(),
        size: 0,
        used_bytes: 0,
        accessed: Time::default(),
        modified: Time::default(),
        changed: Time::default(),
        created: Time::default(),
        change: 0,
    }
}

pub(crate) fn room(stat: &Statfs) -> FreeSpace {
    FreeSpace {
        bytes: stat.bytes,
        bytes_free: stat.bytes_free,
        files: stat.files,
        files_free: stat.files_free,
        bytes_avail: stat.bytes_avail,
        quota_avail_hard: stat.quota.avail_hard,
        quota_avail_soft: stat.quota.avail_soft,
        quota_used: stat.quota.used,
    }
}

fn kind(kind: ObjectKind) -> nfs_ftype4 {
    match kind {
        ObjectKind::Regular => nfs_ftype4::NF4REG,
        ObjectKind::Directory => nfs_ftype4::NF4DIR,
        ObjectKind::Symlink => nfs_ftype4::NF4LNK,
        ObjectKind::Fifo => nfs_ftype4::NF4FIFO,
        ObjectKind::Socket => nfs_ftype4::NF4SOCK,
        ObjectKind::Block => nfs_ftype4::NF4BLK,
        ObjectKind::Character => nfs_ftype4::NF4CHR,
    }
}

fn time(time: Time) -> nfstime4 {
    nfstime4 {
        seconds: time.seconds,
        nseconds: time.nanos,
    }
}

#[inline]
fn object(attr: &Attr, mounted_on_fileid: u64) -> Object {
    Object {
        kind: kind(attr.kind),
        change: attr.change,
        size: attr.size,
        used_bytes: attr.used_bytes,
        fileid: attr.file.0,
        mounted_on_fileid,
        mode: attr.mode,
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        device: (attr.device.major, attr.device.minor),
        accessed: time(attr.accessed),
        created: time(attr.created),
        changed: time(attr.changed),
        modified: time(attr.modified),
    }
}

fn label_told(label: &Label) -> sec_label4<'_> {
    sec_label4 {
        slai_lfs: labelformat_spec4 {
            lfs_lfs: label.format(),
            lfs_pi: label.policy(),
        },
        slai_data: Opaque(label.data()),
    }
}

/// The pseudo file system, as far as it is one.
fn pseudo_system(nfsd: &Nfsd) -> System {
    System {
        fsid: (0, 0),
        lease_s: lease_s(nfsd),
        file_bytes_max: 0,
        links_max: u32::MAX,
        name_bytes_max: fs::NAME_BYTES_MAX as u32,
        io_bytes_max: nfsd.settings.io_bytes_max.into(),
        clone_block_bytes: 0,
        has_xattrs: false,
        has_acls: false,
        has_labels: false,
        has_quotas: false,
        is_absent: false,
    }
}

fn lease_s(nfsd: &Nfsd) -> u32 {
    (nfsd.settings.server.lease / 1_000_000_000) as u32
}

/// Names of an object's owners, where a client is told names, and the list with such names.
#[derive(Debug, Default)]
pub(crate) struct OwnerNames {
    owner: Option<Arc<str>>,
    group: Option<Arc<str>>,
    acl: Vec<u8>,
}

impl RunningCall<'_> {
    /// Whether owners have names for its user: one that has proved who it is, or every one.
    fn has_names(&self) -> bool {
        self.credential().flavor.is_gss() || self.nfsd.owners.are_for_all()
    }

    /// The names of an object's owners, if the client asks for them and is told names.
    ///
    /// # Errors
    /// NFS4ERR_DELAY where they are looked up.
    #[inline]
    pub(crate) fn owner_names(
        &self,
        asked: AskedAttributes,
        attr: &Attr,
    ) -> Result<OwnerNames, nfsstat4> {
        let mut names = match asked.needs_owners() && self.has_names() {
            true => self.look_up_owners(attr)?,
            false => OwnerNames::default(),
        };
        if asked.needs_acl() {
            names.acl = self.listed(attr)?;
        }
        Ok(names)
    }

    /// The value of `acl`.
    #[cold]
    fn listed(&self, attr: &Attr) -> Result<Vec<u8>, nfsstat4> {
        let by = (self.peer.host(), self.now);
        let name = |kind, id| match self.has_names() {
            true => self.nfsd.owners.name(kind, id, by),
            false => Ok(None),
        };
        let mut bytes = Vec::new();
        acl::write(attr, &name, &mut bytes)?;
        Ok(bytes)
    }

    /// Whether the attributes that are asked for may be seen (RFC 8881, section 6.2.1.3.1).
    ///
    /// # Errors
    /// NFS4ERR_ACCESS where a list denies that.
    pub(crate) fn may_see(&self, asked: AskedAttributes, attr: &Attr) -> Result<(), nfsstat4> {
        if attr.acl.is_none() {
            return Ok(());
        }
        let rights = rights(attr, &self.caller(false));
        let is_hidden = asked.needs_object() && !rights.holds(Rights::READ_ATTRIBUTES)
            || asked.needs_acl() && !rights.holds(Rights::READ_ACL);
        match is_hidden {
            true => Err(nfsstat4::NFS4ERR_ACCESS),
            false => Ok(()),
        }
    }

    #[cold]
    fn look_up_owners(&self, attr: &Attr) -> Result<OwnerNames, nfsstat4> {
        let owners = &self.nfsd.owners;
        // Both are asked for before the client comes again.
        let by = (self.peer.host(), self.now);
        let owner = owners.name(AccountKind::User, attr.uid, by);
        let group = owners.name(AccountKind::Group, attr.gid, by);
        Ok(OwnerNames {
            owner: owner?,
            group: group?,
            acl: Vec::new(),
        })
    }

    /// What a `fattr4` asks to be set.
    ///
    /// # Errors
    /// As [`SetAttributes::read`]; NFS4ERR_DELAY where a name is looked up; of a security label
    /// those of [`RunningCall::label_to_set`].
    pub(crate) fn read_attributes(
        &self,
        wanted: &fattr4<'_>,
        is_new: bool,
    ) -> Result<SetAttr, nfsstat4> {
        let by = (self.peer.host(), self.now);
        let by_name = |kind, name: &[u8]| self.nfsd.owners.number(kind, name, by);
        let owners: &ReadOwner<'_> = match self.has_names() {
            true => &by_name,
            false => NO_NAMES,
        };
        let set = SetAttributes::read(wanted, self.minor(), is_new, owners)?;
        let acl = set.acl.map(|aces| acl::read(&aces, owners));
        let label = set.label.map(|label| self.label_to_set(&label));
        Ok(SetAttr {
            acl: acl.transpose()?,
            label: label.transpose()?,
            ..set_attr(&set)
        })
    }

    /// A label of the object at the current file handle, or of what is made there. It is kept in
    /// whatever format it has, since nothing here enforces it (RFC 7862, section 9.5.2).
    ///
    /// # Errors
    /// NFS4ERR_ATTRNOTSUPP where the client has no labels, NFS4ERR_BADLABEL for one that is empty
    /// or too long.
    fn label_to_set(&self, label: &sec_label4<'_>) -> Result<Label, nfsstat4> {
        let granted = match self.current()? {
            PseudoPlace::File { export, .. } => self.peer.view.granted(export),
            _ => None,
        };
        if !granted.is_some_and(|granted| granted.has_labels()) {
            return Err(nfsstat4::NFS4ERR_ATTRNOTSUPP);
        }
        let labelformat_spec4 { lfs_lfs, lfs_pi } = label.slai_lfs;
        Label::new((lfs_lfs, lfs_pi), label.slai_data.0).ok_or(nfsstat4::NFS4ERR_BADLABEL)
    }
}

/// Calls `with` with the values of the object at a place.
///
/// # Errors
/// NFS4ERR_STALE where its export is gone.
#[inline]
fn with_values<T>(
    nfsd: &Nfsd,
    view: &View,
    place: PseudoPlace,
    (attr, names): (&Attr, &OwnerNames),
    (room, [locations, locations_info], rdattr_error): (&FreeSpace, &LocationValues, nfsstat4),
    with: impl FnOnce(&Values<'_>) -> T,
) -> Result<T, nfsstat4> {
    let stale = nfsstat4::NFS4ERR_STALE;
    let mut mounted_on_fileid = attr.file.0;
    let system = match place {
        PseudoPlace::Pseudo(_) => pseudo_system(nfsd),
        PseudoPlace::Absent(export) => {
            let export = view.terms(export).ok_or(stale)?.export;
            mounted_on_fileid = export.junction();
            System {
                fsid: export.fsid(),
                is_absent: true,
                ..pseudo_system(nfsd)
            }
        }
        PseudoPlace::File { export, file } => {
            let granted = view.granted(export).ok_or(stale)?;
            let (export, fs) = (granted.export, granted.fs);
            let info = fs.info();
            if file == fs.root() && export.path() != "/" {
                mounted_on_fileid = export.junction();
            }
            System {
                fsid: export.fsid(),
                lease_s: lease_s(nfsd),
                file_bytes_max: info.file_bytes_max,
                links_max: info.links_max,
                name_bytes_max: fs::NAME_BYTES_MAX as u32,
                io_bytes_max: nfsd.settings.io_bytes_max.into(),
                clone_block_bytes: info.clone_block_bytes,
                has_xattrs: info.has_xattrs,
                has_acls: info.has_acls,
                has_labels: granted.has_labels(),
                has_quotas: fs.quotas().is_some(),
                is_absent: false,
            }
        }
    };
    let handle = match view.handle(place) {
        Some(handle) => Some(handle.encode()),
        None if system.is_absent => None,
        None => return Err(stale),
    };
    Ok(with(&Values {
        object: object(attr, mounted_on_fileid),
        handle: handle.as_ref().map_or(&[], |handle| &handle[..]),
        system,
        room: *room,
        owner: names.owner.as_deref(),
        group: names.group.as_deref(),
        acl: &names.acl,
        label: attr.label.as_ref().map(label_told),
        locations,
        locations_info,
        rdattr_error,
    }))
}

/// The values of `fs_locations` and `fs_locations_info`.
type LocationValues = [Vec<u8>; 2];

/// Those that are asked for.
#[inline]
fn written_locations(
    (nfsd, local): (&Nfsd, Option<SocketAddr>),
    view: &View,
    place: PseudoPlace,
    asked: AskedAttributes,
) -> LocationValues {
    let mut values = LocationValues::default();
    if asked.needs_locations() {
        locations::write(nfsd, view, place, &mut values[0]);
    }
    if asked.needs_locations_info() {
        locations::write_info((nfsd, local), view, place, &mut values[1]);
    }
    values
}

/// Appends a `fattr4` of the object at a place.
///
/// # Errors
/// NFS4ERR_STALE where its export is gone.
#[inline]
pub(crate) fn write(
    nfsd: &Nfsd,
    peer: &Peer,
    place: PseudoPlace,
    of: (&Attr, &OwnerNames),
    room: &FreeSpace,
    asked: AskedAttributes,
    to: &mut Vec<u8>,
) -> Result<(), nfsstat4> {
    let view = &peer.view;
    let locations = written_locations((nfsd, peer.local), view, place, asked);
    let rdattr_error = match place {
        PseudoPlace::Absent(_) if !asked.knows_of_absence() => nfsstat4::NFS4ERR_MOVED,
        _ => nfsstat4::NFS4_OK,
    };
    let beside = (room, &locations, rdattr_error);
    with_values(nfsd, view, place, of, beside, |values| {
        asked.write(values, to);
    })
}

pub(crate) fn getattr<'a>(
    run: &mut RunningCall<'a>,
    args: &GETATTR4args<'a>,
) -> OperationOutcome<'a> {
    let asked = AskedAttributes::new(&args.attr_request, run.minor())?;
    let place = run.current_or_absent(asked)?;
    if let PseudoPlace::Absent(_) = place {
        return got_attr(run, asked, &blank_attributes(), &FreeSpace::default());
    }
    if asked.needs_content() && !run.hear_holder()? {
        return Ok(NextStep::NoMemory);
    }
    if asked.needs_room() {
        let file = file(place);
        return ask_file_system(
            run,
            FsOp::Statfs { file },
            ThenAttributes::GetattrRoom(asked),
        );
    }
    let (file, room) = (file(place), FreeSpace::default());
    match run.begin(FsOp::Getattr { file }, false) {
        QuestionBegun::Done(Ok(Output::Attr(attr))) if run.flow.view.is_none() => {
            got_attr(run, asked, &attr, &room)
        }
        begun => run.await_answer(
            begun,
            Continuation::Attributes(ThenAttributes::Getattr(asked, room)),
        ),
    }
}

#[inline]
fn got_attr<'a>(
    run: &mut RunningCall<'a>,
    asked: AskedAttributes,
    attr: &Attr,
    room: &FreeSpace,
) -> OperationOutcome<'a> {
    let place = run.current_or_absent(asked)?;
    run.may_see(asked, attr)?;
    let names = match place {
        PseudoPlace::Absent(_) => OwnerNames::default(),
        _ => run.owner_names(asked, attr)?,
    };
    let label = attr.label.as_ref().filter(|_| asked.needs_label());
    let long = names.acl.len() + label.map_or(0, |label| label.data().len());
    if long > 0 {
        run.reserve(long as u32)?;
    }
    run.ok(|_| ())?;
    let to = run.link.machine.reply(run.flow.tag).bytes();
    let of = (attr, &names);
    match write(run.nfsd, run.peer, place, of, room, asked, to) {
        Ok(()) => Ok(NextStep::Done),
        Err(status) => run.replace_result(status),
    }
}

/// VERIFY and NVERIFY.
pub(crate) fn verify<'a>(
    run: &mut RunningCall<'a>,
    args: &VERIFY4args<'a>,
) -> OperationOutcome<'a> {
    let asked = AskedAttributes::new(&args.obj_attributes.attrmask, run.minor())?;
    let place = run.current_or_absent(asked)?;
    if let PseudoPlace::Absent(_) = place {
        return verified(run, &blank_attributes(), &FreeSpace::default());
    }
    if asked.needs_content() && !run.hear_holder()? {
        return Ok(NextStep::NoMemory);
    }
    if asked.needs_room() {
        let file = file(place);
        return ask_file_system(run, FsOp::Statfs { file }, ThenAttributes::VerifyRoom);
    }
    let file = file(place);
    ask_file_system(
        run,
        FsOp::Getattr { file },
        ThenAttributes::Verify(FreeSpace::default()),
    )
}

fn verified<'a>(run: &mut RunningCall<'a>, attr: &Attr, room: &FreeSpace) -> OperationOutcome<'a> {
    let (nfs_argop4::OP_VERIFY(args) | nfs_argop4::OP_NVERIFY(args)) = run.op() else {
        unreachable!("VERIFY or NVERIFY asked");
    };
    let minor = run.minor();
    let asked = AskedAttributes::new(&args.obj_attributes.attrmask, minor)?;
    let place = run.current_or_absent(asked)?;
    run.may_see(asked, attr)?;
    let names = match place {
        PseudoPlace::Absent(_) => OwnerNames::default(),
        _ => run.owner_names(asked, attr)?,
    };
    let view = &run.peer.view;
    let locations = written_locations((run.nfsd, run.peer.local), view, place, asked);
    let of = ((attr, &names), (room, &locations, nfsstat4::NFS4_OK));
    let is_same = with_values(run.nfsd, view, place, of.0, of.1, |values| {
        nfs::attributes::verify(&args.obj_attributes, minor, values)
    })??;
    let is_nverify = run.flow.compound.number() == nfs_opnum4::OP_NVERIFY;
    match (is_nverify, is_same) {
        (false, true) | (true, false) => run.ok(|_| ()),
        (false, false) => Err(nfsstat4::NFS4ERR_NOT_SAME),
        (true, true) => Err(nfsstat4::NFS4ERR_SAME),
    }
}

/// Attributes that were set, if all words of a bitmap are in use.
const SETATTR_BYTES: u32 = 8 + 4 + 32;

pub(crate) fn setattr<'a>(
    run: &mut RunningCall<'a>,
    args: &SETATTR4args<'a>,
) -> OperationOutcome<'a> {
    let place = run.current()?;
    let set = run.read_attributes(&args.obj_attributes, false)?;
    run.check_writable(place)?;
    run.reserve(SETATTR_BYTES)?;
    let is_delegated = |time: &Option<SetTime>| matches!(time, Some(SetTime::Delegated(_)));
    let has_delegated = [set.accessed, set.modified].iter().any(is_delegated);
    if has_delegated {
        check_delegates_times(run, place, &args.stateid)?;
    }
    let is_open = match set.size {
        Some(_) => state::check_io(run, &args.stateid, WRITE)?,
        // No other client has a delegation.
        None if has_delegated => false,
        None => {
            let key = run.key(place)?;
            state::break_delegations(run, key)?;
            false
        }
    };
    let op = FsOp::Setattr {
        file: file(place),
        set,
        guard: None,
    };
    run.ask_file_system(Ask {
        op,
        is_open,
        then: Continuation::Attributes(ThenAttributes::Setattr),
    })
}

/// The times of a file are set so by the client alone that they are delegated to (RFC 9754,
/// section 5).
fn check_delegates_times(
    run: &mut RunningCall<'_>,
    place: PseudoPlace,
    named: &stateid4,
) -> Result<(), nfsstat4> {
    let (key, stateid) = (run.key(place)?, run.stateid(named)?);
    let known = run.state_of(key, &stateid)?;
    match run.nfsd.files.delegates_times(&known.state) {
        true => Ok(()),
        false => Err(nfsstat4::NFS4ERR_BAD_STATEID),
    }
}

const XATTR_RIGHTS: u32 = nfs4::ACCESS4_XAREAD | nfs4::ACCESS4_XAWRITE | nfs4::ACCESS4_XALIST;
/// Rights that the minor versions before RFC 8276 know.
const PLAIN_RIGHTS: u32 = nfs4::ACCESS4_READ
    | nfs4::ACCESS4_LOOKUP
    | nfs4::ACCESS4_MODIFY
    | nfs4::ACCESS4_EXTEND
    | nfs4::ACCESS4_DELETE
    | nfs4::ACCESS4_EXECUTE;

pub(crate) fn access<'a>(run: &mut RunningCall<'a>, args: &ACCESS4args) -> OperationOutcome<'a> {
    let place = run.current()?;
    let known = match run.minor() {
        0 | 1 => PLAIN_RIGHTS,
        _ => PLAIN_RIGHTS | XATTR_RIGHTS,
    };
    if args.access & !known != 0 {
        return Err(nfsstat4::NFS4ERR_INVAL);
    }
    let file = file(place);
    match run.begin(FsOp::Getattr { file }, false) {
        QuestionBegun::Done(Ok(Output::Attr(attr))) => tell_access(run, args.access, &attr),
        begun => run.await_answer(
            begun,
            Continuation::Attributes(ThenAttributes::Access(args.access)),
        ),
    }
}

/// What ACCESS tells that it knows of an object, and what of it the caller may do.
pub(crate) fn told_access(attr: &Attr, caller: &fs::Caller<'_>, may_write: bool) -> (u32, u32) {
    let told = told(attr, caller);
    let may = |may: bool, bits: u32| if may { bits } else { 0 };
    let read = nfs4::ACCESS4_READ | nfs4::ACCESS4_XAREAD | nfs4::ACCESS4_XALIST;
    let modify = nfs4::ACCESS4_MODIFY | nfs4::ACCESS4_XAWRITE;
    let (remove, execute) = match attr.kind {
        ObjectKind::Directory => (nfs4::ACCESS4_DELETE, nfs4::ACCESS4_LOOKUP),
        ObjectKind::Regular => (0, nfs4::ACCESS4_EXECUTE),
        _ => (0, 0),
    };
    let changes = may(told.modifies, modify)
        | may(told.extends, nfs4::ACCESS4_EXTEND)
        | may(told.removes, remove);
    let known = read | modify | nfs4::ACCESS4_EXTEND | remove | execute;
    let granted = may(told.reads, read) | may(told.executes, execute) | may(may_write, changes);
    (known, granted)
}

fn tell_access<'a>(run: &mut RunningCall<'a>, asked: u32, attr: &Attr) -> OperationOutcome<'a> {
    let place = run.current()?;
    let may_write = run.check_writable(place).is_ok();
    let (known, granted) = told_access(attr, &run.caller(false), may_write);
    let resok = ACCESS4resok {
        supported: asked & known,
        access: asked & granted,
    };
    run.ok(|to| resok.encode(to))
}

pub(crate) fn getxattr<'a>(
    run: &mut RunningCall<'a>,
    args: &XATTR4args<'a>,
) -> OperationOutcome<'a> {
    let file = file(run.current()?);
    let name = args.name.0;
    ask_file_system(run, FsOp::GetXattr { file, name }, ThenAttributes::GetXattr)
}

/// The answer of SETXATTR and REMOVEXATTR: how the object changed.
const CHANGE_BYTES: u32 = 8 + 20;

/// What must be so before an extended attribute changes.
fn check_change(run: &mut RunningCall<'_>) -> Result<FileId, nfsstat4> {
    let place = run.current()?;
    run.check_writable(place)?;
    run.reserve(CHANGE_BYTES)?;
    let key = run.key(place)?;
    state::break_delegations(run, key)?;
    Ok(file(place))
}

pub(crate) fn setxattr<'a>(
    run: &mut RunningCall<'a>,
    args: &SETXATTR4args<'a>,
) -> OperationOutcome<'a> {
    let op = FsOp::SetXattr {
        file: check_change(run)?,
        name: args.sxa_key.0,
        value: args.sxa_value.0,
        how: match args.sxa_option {
            setxattr_option4::SETXATTR4_EITHER => SetXattr::Either,
            setxattr_option4::SETXATTR4_CREATE => SetXattr::Create,
            setxattr_option4::SETXATTR4_REPLACE => SetXattr::Replace,
        },
    };
    ask_file_system(run, op, ThenAttributes::ChangeXattr)
}

pub(crate) fn removexattr<'a>(
    run: &mut RunningCall<'a>,
    args: &XATTR4args<'a>,
) -> OperationOutcome<'a> {
    let file = check_change(run)?;
    let name = args.name.0;
    ask_file_system(
        run,
        FsOp::RemoveXattr { file, name },
        ThenAttributes::ChangeXattr,
    )
}

/// Bytes of LISTXATTRS's result beside the names: a cookie, how many there are,
/// whether that was all.
const LIST_BYTES: u32 = 16;

fn list_bytes_max(run: &mut RunningCall<'_>, maxcount: u32) -> Result<u32, nfsstat4> {
    let max = maxcount.min(run.room().saturating_sub(8));
    max.checked_sub(LIST_BYTES)
        .ok_or(nfsstat4::NFS4ERR_TOOSMALL)
}

pub(crate) fn listxattrs<'a>(
    run: &mut RunningCall<'a>,
    args: &LISTXATTRS4args,
) -> OperationOutcome<'a> {
    let op = FsOp::ListXattrs {
        file: file(run.current()?),
        cookie: args.lxa_cookie,
        name_bytes_max: list_bytes_max(run, args.lxa_maxcount)?,
    };
    ask_file_system(run, op, ThenAttributes::ListXattrs)
}

fn list_names<'a>(run: &mut RunningCall<'a>, listing: &fs::Listing) -> OperationOutcome<'a> {
    let nfs_argop4::OP_LISTXATTRS(args) = run.op() else {
        unreachable!("LISTXATTRS asked");
    };
    let bytes_max = list_bytes_max(run, args.lxa_maxcount)? as usize;
    let (mut count, mut bytes, mut last) = (0, 0, args.lxa_cookie);
    for (entry, name) in listing.iter() {
        bytes += 4 + name.len() + pad(name.len());
        if bytes > bytes_max {
            break;
        }
        (count, last) = (count + 1, entry.cookie);
    }
    if count == 0 && !listing.is_empty() {
        return Err(nfsstat4::NFS4ERR_TOOSMALL);
    }
    let is_end = listing.is_end && count == listing.len();
    run.ok(|to| {
        last.encode(to);
        (count as u32).encode(to);
        for (_, name) in listing.iter().take(count) {
            let name: component4<'_> = Opaque(name);
            name.encode(to);
        }
        is_end.encode(to);
    })
}
