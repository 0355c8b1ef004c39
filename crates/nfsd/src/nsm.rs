//! The Network Status Monitor: hosts tell that they have started again, so that what they had
//! locked is free. It watches no host for others: that is for the lock manager of a host to ask of
//! its own monitor.

use std::net::IpAddr;

use wire::nsm::{sm_proc, sm_res, sm_stat, sm_stat_res, stat_chge};
use wire::xdr::{Decode, Encode, Reader, XdrError};

use crate::Nfsd;

/// A call of a host: appends what it is answered.
pub(crate) fn answer(
    (nfsd, peer): (&Nfsd, IpAddr),
    procedure: sm_proc,
    args: &[u8],
    to: &mut Vec<u8>,
) -> Result<(), XdrError> {
    let state = nfsd.nsm_state();
    match procedure {
        sm_proc::SM_NOTIFY => {
            let notice = stat_chge::decode(&mut Reader::new(args))?;
            nfsd.host_restarted(peer, notice.mon_name.0, Some(notice.state));
        }
        sm_proc::SM_STAT | sm_proc::SM_MON => {
            let res_stat = sm_res::STAT_FAIL;
            sm_stat_res { res_stat, state }.encode(to);
        }
        sm_proc::SM_UNMON | sm_proc::SM_UNMON_ALL => sm_stat { state }.encode(to),
        sm_proc::SM_SIMU_CRASH | sm_proc::SM_NULL => {}
    }
    Ok(())
}

impl Nfsd {
    /// The state of this server: odd, and higher with each start.
    pub(crate) fn nsm_state(&self) -> u32 {
        (self.server.boot() & 0x3fff_ffff) << 1 | 1
    }
}
