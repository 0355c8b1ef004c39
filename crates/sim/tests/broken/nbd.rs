//! What NBD clients find.

use faults::Fault;
use random::Random;
use sim::{Lies, NbdForm, NbdPlan, Plan};

use crate::{LOST, is_found_where};

/// All hosts speak NBD, in this form, and nothing keeps them from what they ask for.
fn speaks_nbd(plan: &mut Plan, form: NbdForm) -> bool {
    let mut random = Random::new(plan.seed);
    plan.speak_nbd(&mut random, |_| true);
    for host in &mut plan.hosts {
        (host.tls, host.dhchap, host.rdma) = (None, None, false);
        host.concatenates = false;
        host.nbd = host.nbd.map(|nbd| NbdPlan { form, ..nbd });
    }
    plan.net.flips = 0;
    plan.limits.clear();
    true
}

/// The same of files, which the power cuts off.
fn cuts_nbd(plan: &mut Plan) -> bool {
    plan.volumes
        .iter_mut()
        .for_each(|volume| volume.lies = Lies::File);
    (plan.fua_percent, plan.flushes, plan.faults.power_cuts) = (50, 0, 4);
    speaks_nbd(plan, NbdForm::Structured)
}

/// The same with NVMe hosts beside them, which reserve volumes.
fn reserves_beside_nbd(plan: &mut Plan) -> bool {
    plan.reserve_percent = 20;
    plan.net.flips = 0;
    let mut random = Random::new(plan.seed);
    plan.hosts.iter_mut().for_each(|host| host.iscsi = None);
    plan.speak_nbd(&mut random, |r| r.one_in(2));
    plan.limits.clear();
    plan.has_nbd() && plan.hosts.iter().any(|host| host.nbd.is_none())
}

#[test]
fn fua_of_nbd_that_is_forgotten_is_found() {
    is_found_where(cuts_nbd, Fault::ForgetFua, LOST);
}

#[test]
fn reservations_that_nbd_clients_do_not_keep_are_found() {
    let words = ["against the reservations"];
    is_found_where(reserves_beside_nbd, Fault::NoReservations, &words);
}

#[test]
fn holes_that_an_nbd_client_is_told_of_where_data_lies_are_found() {
    let aims = |plan: &mut Plan| speaks_nbd(plan, NbdForm::Extended);
    is_found_where(aims, Fault::NoExtents, &["zeros that nothing explains"]);
}
