use super::*;
use crate::provisioning::Thresholds;
use crate::testing::unit;

fn ask(page: u8, subpage: u8, control: u8) -> ModeSense {
    ModeSense {
        long: false,
        long_lba: false,
        no_block_descriptor: true,
        control,
        page,
        subpage,
        allocation_len: 255,
    }
}

fn sensed(command: &ModeSense, unit: &Unit) -> Result<Vec<u8>, Sense> {
    let mut out = Vec::new();
    sense(command, unit, &mut out).map(|()| out)
}

/// One page without the header of the list.
fn page(code: u8, subpage: u8, control: u8, unit: &Unit) -> Vec<u8> {
    sensed(&ask(code, subpage, control), unit).unwrap()[4..].to_vec()
}

const SHORT: ModeSelect = ModeSelect {
    long: false,
    list_len: 0,
};

/// MODE SELECT(6) of one page.
fn selected(page: &[u8], unit: &Unit) -> Result<Modes, Sense> {
    let mut list = vec![0; 4];
    list.extend_from_slice(page);
    select(&SHORT, &list, unit)
}

#[test]
fn mode_pages_have_the_layout_of_the_standard() {
    let unit = unit();
    let mut caching = vec![0x08, 18, 4];
    caching.resize(20, 0);
    assert_eq!(page(0x08, 0, 0, &unit), caching);
    let control = [0x0a, 10, 0x22, 0x10, 0, 0, 0, 0, 0xff, 0xff, 0, 0];
    assert_eq!(page(0x0a, 0, 0, &unit), control);
    let mut extension = vec![0x4a, 1, 0, 28, 1, 0, 44];
    extension.resize(32, 0);
    assert_eq!(page(0x0a, 1, 0, &unit), extension);
    assert_eq!(
        page(0x01, 0, 0, &unit),
        [1, 10, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0]
    );
    assert_eq!(
        page(0x1c, 0, 0, &unit),
        [0x1c, 10, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
}

#[test]
fn current_changeable_default_and_saved() {
    let mut unit = unit();
    unit.modes = Modes {
        descriptor_sense: true,
        write_protected: true,
        write_cache: false,
        ..Modes::default()
    };
    let bytes = |control, unit: &Unit| {
        let caching = page(0x08, 0, control, unit);
        let modes = page(0x0a, 0, control, unit);
        (caching[2], modes[2], modes[4])
    };
    assert_eq!(bytes(0, &unit), (0, 0x26, 8));
    assert_eq!(bytes(1, &unit), (4, 4, 8));
    assert_eq!(bytes(2, &unit), (4, 0x22, 0));
    let saved = sensed(&ask(0x08, 0, 3), &unit).unwrap_err();
    assert_eq!((saved.key, saved.code), (5, 0x3900));
    unit.volatile_cache = false;
    assert_eq!(bytes(1, &unit).0, 0);
    assert_eq!(bytes(2, &unit).0, 0);
}

#[test]
fn mode_sense_returns_the_pages_asked_for() {
    let unit = unit();
    let codes = |page, subpage| {
        let list = sensed(&ask(page, subpage, 0), &unit).unwrap();
        let mut codes = Vec::new();
        let mut at = 4;
        while at < list.len() {
            let is_subpage = list[at] & 0x40 != 0;
            let (subpage, len) = match is_subpage {
                true => (list[at + 1], 4 + usize::from(list[at + 3])),
                false => (0, 2 + usize::from(list[at + 1])),
            };
            codes.push((list[at] & 0x3f, subpage));
            at += len;
        }
        assert_eq!(at, list.len());
        codes
    };
    let plain = [(0x01, 0), (0x08, 0), (0x0a, 0), (0x1c, 0)];
    assert_eq!(codes(0x3f, 0), plain);
    let all = [
        (0x01, 0),
        (0x08, 0),
        (0x0a, 0),
        (0x0a, 1),
        (0x1c, 0),
        (0x1c, 2),
    ];
    assert_eq!(codes(0x3f, 0xff), all);
    assert_eq!(codes(0x0a, 0xff), [(0x0a, 0), (0x0a, 1)]);
    assert_eq!(codes(0x0a, 1), [(0x0a, 1)]);
    let refused = |page, subpage| sensed(&ask(page, subpage, 0), &unit).unwrap_err();
    assert_eq!(refused(0x02, 0), Sense::in_cdb(2, Some(5)));
    assert_eq!(refused(0x08, 1), Sense::in_cdb(3, None));
    assert_eq!(refused(0x3f, 7), Sense::in_cdb(3, None));
}

#[test]
fn mode_sense_begins_with_header_and_block_descriptor() {
    let mut unit = unit();
    let mut command = ask(0x1c, 0, 0);
    assert_eq!(sensed(&command, &unit).unwrap()[..4], [15, 0, 0x10, 0]);
    unit.read_only = true;
    command.no_block_descriptor = false;
    let list = sensed(&command, &unit).unwrap();
    assert_eq!(list[..12], [23, 0, 0x90, 8, 0, 0, 8, 0, 0, 0, 2, 0]);
    unit.read_only = false;
    unit.modes.write_protected = true;
    unit.block_count = 1 << 33;
    command.long = true;
    let list = sensed(&command, &unit).unwrap();
    assert_eq!(list[..8], [0, 26, 0, 0x90, 0, 0, 0, 8]);
    assert_eq!(list[8..16], [0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]);
    command.long_lba = true;
    let list = sensed(&command, &unit).unwrap();
    assert_eq!(list[..8], [0, 34, 0, 0x90, 1, 0, 0, 16]);
    assert_eq!(
        list[8..24],
        [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]
    );
}

#[test]
fn mode_pages_that_are_sensed_are_taken_by_mode_select() {
    let mut unit = unit();
    for long in [false, true] {
        for (no_block_descriptor, long_lba) in [(true, false), (false, false), (false, long)] {
            unit.modes.descriptor_sense = long;
            let mut command = ask(0x3f, 0xff, 0);
            command.long = long;
            command.long_lba = long_lba;
            command.no_block_descriptor = no_block_descriptor;
            let list = sensed(&command, &unit).unwrap();
            let select = select(&ModeSelect { long, list_len: 0 }, &list, &unit);
            assert_eq!(select, Ok(unit.modes));
        }
    }
}

#[test]
fn settings_change_what_they_say() {
    let unit = unit();
    let mut caching = page(0x08, 0, 0, &unit);
    caching[2] = 0;
    let mut expected = unit.modes;
    expected.write_cache = false;
    assert_eq!(selected(&caching, &unit), Ok(expected));
    let mut control = page(0x0a, 0, 0, &unit);
    control[2] |= 4;
    expected = unit.modes;
    expected.descriptor_sense = true;
    assert_eq!(selected(&control, &unit), Ok(expected));
    control[2] &= !4;
    control[4] = 8;
    expected = unit.modes;
    expected.write_protected = true;
    assert_eq!(selected(&control, &unit), Ok(expected));
    // Two at once, and what was set is cleared.
    let mut set = unit.clone();
    set.modes = expected;
    control[4] = 0;
    caching.extend_from_slice(&control);
    expected = Modes {
        write_cache: false,
        ..Modes::default()
    };
    assert_eq!(selected(&caching, &set), Ok(expected));
}

#[test]
fn a_mode_select_with_a_mistake_is_refused() {
    let unit = unit();
    let control = page(0x0a, 0, 0, &unit);
    let changed = |at: usize, flip: u8| {
        let mut page = control.clone();
        page[at] ^= flip;
        selected(&page, &unit).unwrap_err()
    };
    // PS, another page, its length, a field that cannot be changed.
    assert_eq!(changed(0, 0x80), Sense::in_list(4, Some(7)));
    assert_eq!(changed(0, 0x01), Sense::in_list(4, Some(5)));
    assert_eq!(changed(1, 0x01), Sense::in_list(5, None));
    assert_eq!(changed(2, 0x60), Sense::in_list(6, Some(6)));
    assert_eq!(changed(11, 0x01), Sense::in_list(15, Some(0)));
    assert_eq!(selected(&control[..11], &unit), Err(Sense::list_length()));
    assert_eq!(selected(&control[..1], &unit).unwrap_err().code, 0x1a00);
    assert_eq!(select(&SHORT, &[0; 3], &unit), Err(Sense::list_length()));
    assert_eq!(select(&SHORT, &[], &unit), Ok(unit.modes));
    assert_eq!(selected(&[], &unit), Ok(unit.modes));
    // WCE where there is no cache.
    let mut through = unit.clone();
    through.volatile_cache = false;
    let caching = page(0x08, 0, 0, &unit);
    assert_eq!(
        selected(&caching, &through),
        Err(Sense::in_list(6, Some(2)))
    );
}

#[test]
fn mode_select_does_not_change_the_capacity() {
    let unit = unit();
    let with = |descriptor: &[u8]| {
        let mut list = vec![0, 0, 0, descriptor.len() as u8];
        list.extend_from_slice(descriptor);
        select(&SHORT, &list, &unit)
    };
    assert_eq!(with(&[0, 0, 8, 0, 0, 0, 2, 0]), Ok(unit.modes));
    assert_eq!(with(&[0, 0, 0, 0, 0, 0, 2, 0]), Ok(unit.modes));
    assert_eq!(
        with(&[0, 0, 4, 0, 0, 0, 2, 0]),
        Err(Sense::in_list(4, None))
    );
    assert_eq!(
        with(&[0, 0, 8, 0, 0, 0, 16, 0]),
        Err(Sense::in_list(8, None))
    );
    assert_eq!(with(&[0, 0, 8, 0]), Err(Sense::in_list(3, None)));
    assert_eq!(
        select(&SHORT, &[0, 0, 0, 8, 0, 0], &unit),
        Err(Sense::list_length())
    );
}

#[test]
fn thresholds_are_set_one_by_one() {
    let mut unit = unit();
    unit.default_modes.thresholds.available = Threshold {
        enabled: true,
        count: 5,
    };
    let head = [0x5c, 2, 0, 28];
    let none = [0; 12];
    let page_of =
        |available: [u8; 8], used: [u8; 8]| [&head[..], &none, &available, &used].concat();
    let current = page_of([0, 1, 0, 0, 0, 0, 0, 0], [1, 2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(page(0x1c, 2, 0, &unit), current);
    let changeable = [0x80, 0, 0, 0, 255, 255, 255, 255];
    assert_eq!(page(0x1c, 2, 1, &unit), page_of(changeable, changeable));
    let default = page_of([0x80, 1, 0, 0, 0, 0, 0, 5], [1, 2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(page(0x1c, 2, 2, &unit), default);

    let wanted = page_of([0x80, 1, 0, 0, 0, 1, 0, 2], [1, 2, 0, 0, 0, 0, 0, 9]);
    let modes = selected(&wanted, &unit).expect("modes");
    let Thresholds { available, used } = modes.thresholds;
    assert_eq!((available.enabled, available.count), (true, 0x1_0002));
    assert_eq!((used.enabled, used.count), (false, 9));
    unit.modes = modes;
    assert_eq!(page(0x1c, 2, 0, &unit), wanted);
    // Another resource, arming or type, and SITUA.
    for (at, bits, bit) in [(17, 0x04, 2), (24, 0x03, 1), (16, 0x08, 3), (4, 0x01, 0)] {
        let mut wrong = wanted.clone();
        wrong[at] ^= bits;
        let expected = Sense::in_list(4 + at as u16, Some(bit));
        assert_eq!(selected(&wrong, &unit), Err(expected), "byte {at}");
    }

    unit.thin = false;
    assert_eq!(sensed(&ask(0x1c, 2, 0), &unit), Err(Sense::in_cdb(3, None)));
    assert_eq!(selected(&wanted, &unit), Err(Sense::in_list(4, Some(5))));
    assert_eq!(page(0x01, 0, 0, &unit)[7], 0);
    assert_eq!(page(0x1c, 0xff, 0, &unit).len(), 12);
}
