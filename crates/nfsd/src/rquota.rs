//! RQUOTA: what a user or a group has in an export and may have, as `quota` of a client shows it.
//! Users are told of themselves and their groups, the superuser of all.

use nfs::connection::{Credential, Flavor};
use store::fs::{QuotaSubject, QuotaUsage, Time};
use wire::rquota::{
    RQUOTA_GRPQUOTA, RQUOTA_USRQUOTA, ext_getquota_args, getquota_args, getquota_rslt, rquota,
    rquota_proc,
};
use wire::xdr::{Decode, Encode, Reader, XdrError};

use crate::peer::Peer;

/// The unit of what is told in blocks: larger where a number would not fit in 32 bits.
const BLOCK_BYTES_MIN: u64 = 1024;

/// A procedure of a version: the second one asks about groups too.
#[derive(Clone, Copy)]
pub(crate) struct QuotaCall<'a> {
    pub(crate) procedure: rquota_proc,
    pub(crate) is_extended: bool,
    pub(crate) credential: &'a Credential,
    pub(crate) time: Time,
}

/// A call of a client: appends what it is answered.
pub(crate) fn answer(
    call: QuotaCall<'_>,
    peer: &Peer,
    args: &[u8],
    to: &mut Vec<u8>,
) -> Result<(), XdrError> {
    if call.procedure == rquota_proc::RQUOTAPROC_NULL {
        return Ok(());
    }
    let from = &mut Reader::new(args);
    let (path, subject) = match call.is_extended {
        false => {
            let asked = getquota_args::decode(from)?;
            (asked.gqa_pathp.0, Some(QuotaSubject::User(asked.gqa_uid)))
        }
        true => {
            let asked = ext_getquota_args::decode(from)?;
            let subject = match asked.gqa_type {
                RQUOTA_USRQUOTA => Some(QuotaSubject::User(asked.gqa_id)),
                RQUOTA_GRPQUOTA => Some(QuotaSubject::Group(asked.gqa_id)),
                _ => None,
            };
            (asked.gqa_pathp.0, subject)
        }
    };
    told(call, peer, path, subject).encode(to);
    Ok(())
}

fn told(
    call: QuotaCall<'_>,
    peer: &Peer,
    path: &[u8],
    subject: Option<QuotaSubject>,
) -> getquota_rslt {
    let path = str::from_utf8(path).ok();
    let found = path.and_then(|path| peer.view.export_at(path));
    let (Some((granted, _)), Some(subject)) = (found, subject) else {
        return getquota_rslt::Q_NOQUOTA;
    };
    let Some(quotas) = granted.fs.quotas() else {
        return getquota_rslt::Q_NOQUOTA;
    };
    let said = call.credential;
    let acting = granted.rule.acting_credential(said);
    let acting = acting.as_ref().unwrap_or(said);
    let is_closed = granted.lacks(said.flavor, peer.xprtsec()).is_some();
    let is_own = |who: &Credential| match subject {
        QuotaSubject::User(uid) => who.uid == uid,
        QuotaSubject::Group(gid) => who.gid == gid || who.gids().contains(&gid),
        QuotaSubject::EachUser | QuotaSubject::Tree(_) => false,
    };
    let is_said = said.flavor != Flavor::None && !said.is_unknown;
    let may = acting.uid == 0 || is_own(acting) || (is_said && is_own(said));
    match may && !is_closed {
        true => getquota_rslt::Q_OK(shown(&quotas.usage_of(&subject), call.time)),
        false => getquota_rslt::Q_EPERM,
    }
}

/// In blocks, 0 where there is no limit.
fn shown(usage: &QuotaUsage, now: Time) -> rquota {
    let limits = &usage.limits;
    let (hard, soft) = (limits.hard_bytes, limits.soft_bytes);
    let largest = usage.bytes.max(hard.unwrap_or(0)).max(soft.unwrap_or(0));
    let mut block = BLOCK_BYTES_MIN;
    while largest.div_ceil(block) > u32::MAX.into() {
        block *= 2;
    }
    let blocks = |bytes: u64| bytes.div_ceil(block) as u32;
    let count = |objects: u64| u32::try_from(objects).unwrap_or(u32::MAX);
    let left = |until: Option<i64>| {
        let left = until.map_or(0, |until| until.saturating_sub(now.seconds).max(0));
        u32::try_from(left).unwrap_or(u32::MAX)
    };
    rquota {
        rq_bsize: block as u32,
        rq_active: true,
        rq_bhardlimit: hard.map_or(0, blocks),
        rq_bsoftlimit: soft.map_or(0, blocks),
        rq_curblocks: blocks(usage.bytes),
        rq_fhardlimit: limits.hard_objects.map_or(0, count),
        rq_fsoftlimit: limits.soft_objects.map_or(0, count),
        rq_curfiles: count(usage.objects),
        rq_btimeleft: left(usage.bytes_until_s),
        rq_ftimeleft: left(usage.objects_until_s),
    }
}
