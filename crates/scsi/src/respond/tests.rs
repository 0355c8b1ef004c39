use super::*;
use crate::sense::Attention;
use crate::testing::{target, unit};
use crate::{decode, lun};

fn answered(bytes: &[u8], unit: &Unit, nexus: &mut Nexus) -> Result<Vec<u8>, Sense> {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    let command = decode(&cdb, unit)?;
    let mut out = Vec::new();
    respond(&command, Addressed::Unit(unit), nexus, &target(), &mut out)?;
    Ok(out)
}

fn answer(bytes: &[u8]) -> Result<Vec<u8>, Sense> {
    answered(bytes, &unit(), &mut Nexus::new())
}

#[test]
fn read_capacity_tells_blocks_and_their_size() {
    assert_eq!(answer(&[0x25]), Ok(vec![0, 0, 7, 0xff, 0, 0, 2, 0]));
    let ask = [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32];
    let mut expected = vec![0, 0, 0, 0, 0, 0, 7, 0xff, 0, 0, 2, 0, 0, 3, 0xc0, 0];
    expected.resize(32, 0);
    assert_eq!(answer(&ask), Ok(expected));
    let mut large = unit();
    large.block_count = 1 << 33;
    large.block_bytes = 4096;
    large.thin = false;
    let mut nexus = Nexus::new();
    let short = answered(&[0x25], &large, &mut nexus);
    assert_eq!(short, Ok(vec![0xff, 0xff, 0xff, 0xff, 0, 0, 16, 0]));
    let long = answered(&ask, &large, &mut nexus).unwrap();
    assert_eq!(
        long[..16],
        [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 16, 0, 0, 3, 0, 0]
    );
}

#[test]
fn report_luns_lists_the_units() {
    let ask = |select| answer(&[0xa0, 0, select, 0, 0, 0, 0, 0, 1, 0]);
    let list = |luns: &[u64]| {
        let mut list = vec![0, 0, 0, 8 * luns.len() as u8, 0, 0, 0, 0];
        luns.iter()
            .for_each(|lun| list.extend_from_slice(&lun.to_be_bytes()));
        Ok(list)
    };
    let units = [0, 0x412c_0000_0000_0000];
    assert_eq!(ask(0), list(&units));
    assert_eq!(ask(1), list(&[lun::REPORT_LUNS]));
    assert_eq!(ask(2), list(&[units[0], units[1], lun::REPORT_LUNS]));
    assert_eq!(ask(3), Err(Sense::in_cdb(2, None)));
    assert_eq!(ask(0x10), Err(Sense::in_cdb(2, None)));
    // The length is of the whole list even when it is cut.
    let cut = answer(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 12]);
    assert_eq!(cut, Ok(vec![0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0]));
}

#[test]
fn report_luns_clears_the_unit_attention_of_changed_luns() {
    let mut nexus = Nexus::new();
    nexus.post(Attention::LUNS_CHANGED);
    nexus.post(Attention::CAPACITY_CHANGED);
    answered(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0], &unit(), &mut nexus).unwrap();
    assert_eq!(nexus.pending(), Some(Attention::CAPACITY_CHANGED));
}

#[test]
fn request_sense_returns_pending_unit_attention_once() {
    let mut nexus = Nexus::new();
    nexus.post(Attention::RESET);
    let ask = |nexus: &mut Nexus, flags| answered(&[0x03, flags, 0, 0, 252], &unit(), nexus);
    let first = ask(&mut nexus, 0).unwrap();
    assert_eq!(
        (first.len(), first[0], first[2], first[12], first[13]),
        (18, 0x70, 6, 0x29, 3)
    );
    let second = ask(&mut nexus, 1);
    assert_eq!(second, Ok(vec![0x72, 0, 0, 0, 0, 0, 0, 0]));
    // Of a unit that there is not: told as data.
    let command = Command::RequestSense {
        descriptor: true,
        allocation_len: 252,
    };
    let mut out = Vec::new();
    let result = respond(
        &command,
        Addressed::Nothing,
        &mut nexus,
        &target(),
        &mut out,
    );
    assert_eq!((result, &out[..4]), (Ok(()), &[0x72, 5, 0x25, 0][..]));
}

#[test]
fn commands_without_data_have_empty_answers() {
    for bytes in [&[0x00][..], &[0x1b, 0, 0, 0, 1], &[0x1d, 4], &[0x1e]] {
        assert_eq!(answer(bytes), Ok(Vec::new()));
    }
    let mut out = Vec::new();
    let mut nexus = Nexus::new();
    let command = Command::TestUnitReady;
    let result = respond(
        &command,
        Addressed::Nothing,
        &mut nexus,
        &target(),
        &mut out,
    );
    assert_eq!(result, Err(Sense::no_unit()));
    let result = respond(
        &command,
        Addressed::ReportLuns,
        &mut nexus,
        &target(),
        &mut out,
    );
    assert_eq!(result, Ok(()));
}

#[test]
fn read_defect_data_lists_no_defects() {
    assert_eq!(
        answer(&[0x37, 0, 0x1d, 0, 0, 0, 0, 0, 32]),
        Ok(vec![0, 0x1d, 0, 0])
    );
    let long = answer(&[0xb7, 0x0d, 0, 0, 0, 0, 0, 0, 0, 32]);
    assert_eq!(long, Ok(vec![0, 0x0d, 0, 0, 0, 0, 0, 0]));
}

#[test]
fn log_sense_lists_pages_and_refuses_others() {
    let ask = |page, subpage| answer(&[0x4d, 0, page, subpage, 0, 0, 0, 1, 0]);
    assert_eq!(ask(0x40, 0), Ok(vec![0, 0, 0, 3, 0, 0x0c, 0x2f]));
    assert_eq!(
        ask(0, 0xff),
        Ok(vec![0x40, 0xff, 0, 8, 0, 0, 0, 0xff, 0x0c, 0, 0x2f, 0])
    );
    assert_eq!(
        ask(0x6f, 0),
        Ok(vec![0x2f, 0, 0, 8, 0, 0, 3, 4, 0, 0, 0xff, 0xff])
    );
    assert_eq!(ask(0x0d, 0), Err(Sense::in_cdb(2, Some(5))));
    assert_eq!(ask(0x2f, 1), Err(Sense::in_cdb(3, None)));
    assert_eq!(ask(0x0c, 1), Err(Sense::in_cdb(3, None)));
    // Where blocks cannot be given back nothing is told of the space below.
    let mut thick = unit();
    thick.thin = false;
    let of_thick = |page| {
        let mut cdb = [0; 16];
        cdb[..9].copy_from_slice(&[0x4d, 0, page, 0, 0, 0, 0, 1, 0]);
        let command = crate::decode(&cdb, &thick).expect("a CDB");
        let (mut out, to) = (Vec::new(), Addressed::Unit(&thick));
        respond(&command, to, &mut Nexus::new(), &target(), &mut out).map(|()| out)
    };
    assert_eq!(of_thick(0x40), Ok(vec![0, 0, 0, 2, 0, 0x2f]));
    assert_eq!(of_thick(0x0c), Err(Sense::in_cdb(2, Some(5))));
}

#[test]
fn every_answer_is_cut_at_its_allocation_length() {
    let asks: [(&[u8], usize); 12] = [
        (&[0x03], 4),
        (&[0x12], 4),
        (&[0x12, 1, 0x83], 4),
        (&[0x1a, 0, 0x3f], 4),
        (&[0x5a, 0, 0x3f], 8),
        (&[0x4d], 8),
        (&[0x37], 8),
        (&[0xa0], 9),
        (&[0x9e, 0x10], 13),
        (&[0xa3, 0x0a], 9),
        (&[0xa3, 0x0c], 9),
        (&[0xa3, 0x0d], 9),
    ];
    for (start, at) in asks {
        let ask = |len: u8| {
            let mut bytes = start.to_vec();
            bytes.resize(at, 0);
            bytes.push(len);
            answer(&bytes)
        };
        let whole = ask(255).unwrap();
        for len in 4..255 {
            let cut = whole.len().min(len.into());
            assert_eq!(ask(len).unwrap(), whole[..cut], "{start:02x?} {len}");
        }
    }
}
