use super::*;

fn identity(ino: u64, born: i64) -> ObjectIdentity {
    ObjectIdentity { ino, born, name: 0 }
}

const KEY: HandleKey = HandleKey([5; 16]);

fn open(folder: &Path) -> HandleTable {
    let first = || Header::new(7, identity(2, 1), false, 0);
    HandleTable::open(folder, true, KEY, first).unwrap_or_else(|_| panic!("it opens"))
}

fn object(ino: u64, dir: u64, name: &[u8]) -> Record {
    Record::new(identity(ino, 1), dir, name)
}

fn long(len: usize) -> Vec<u8> {
    (0..len).map(|i| b'a' + (i % 26) as u8).collect()
}

#[test]
fn records_of_all_name_lengths_are_there_after_opening_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = open(folder.path());
    let mut numbers = Vec::new();
    for len in [1, 40, 41, 152, 153, 255] {
        numbers.push((
            len,
            table.add(object(len as u64, ROOT, &long(len))).unwrap(),
        ));
    }
    // Once as if killed, once closed.
    for _ in 0..2 {
        drop(table);
        table = open(folder.path());
        assert_eq!(table.header().instance, 7);
        for &(len, number) in &numbers {
            let (found, record) = table.find(&identity(len as u64, 1)).unwrap().unwrap();
            assert_eq!((found, record.name), (number, long(len)));
        }
        let root = table.find(&identity(2, 1)).unwrap().unwrap();
        assert_eq!(root.0, ROOT);
        table.close().unwrap();
    }
}

#[test]
fn file_numbers_are_given_once_also_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let mut last = 0;
    for round in 0..3 {
        let mut table = open(folder.path());
        for i in 0..10 {
            let number = table.add(object(100 + i, ROOT, b"x")).unwrap();
            assert!(number > last);
            last = number;
            table.remove(number).unwrap();
            assert_eq!(table.get(number).unwrap(), None);
        }
        // What was written since the numbers were set aside is lost.
        let bytes = NUMBERS as usize * SLOT_BYTES;
        let at = (last - 9) * SLOT_BYTES as u64;
        table.objects.write_all_at(&vec![0; bytes], at).unwrap();
        if round == 1 {
            table.close().unwrap();
        }
    }
}

#[test]
fn a_used_inode_number_means_the_new_object() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = open(folder.path());
    let old = table.add(object(9, ROOT, b"x")).unwrap();
    assert_eq!(table.find(&identity(9, 2)).unwrap(), None);
    assert_eq!(table.get(old).unwrap(), None);
    let mut named = identity(9, 2);
    named.name = 5;
    let new = table
        .add(Record {
            identity: named,
            ..object(9, ROOT, b"x")
        })
        .unwrap();
    assert_eq!(table.find(&named).unwrap().unwrap().0, new);
    named.name = 6;
    assert_eq!(table.find(&named).unwrap(), None);
}

fn places(table: &HandleTable, number: u64) -> Vec<(u64, Vec<u8>)> {
    let record = table.get(number).unwrap().unwrap();
    let aliases = table.aliases(&record).unwrap();
    let mut places = vec![(record.dir, record.name)];
    places.extend(
        aliases
            .into_iter()
            .map(|(_, alias)| (alias.dir, alias.name)),
    );
    places.retain(|place| !place.1.is_empty());
    places.sort();
    places
}

#[test]
fn places_of_an_object_are_added_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = open(folder.path());
    let number = table.add(object(9, ROOT, b"a")).unwrap();
    let far = long(200);
    table.add_place(number, ROOT, b"a").unwrap();
    table.add_place(number, ROOT, b"b").unwrap();
    table.add_place(number, 5, &far).unwrap();
    table.add_place(number, 5, b"d").unwrap();
    let place = |dir, name: &[u8]| (dir, name.to_vec());
    let all = [
        place(1, b"a"),
        place(1, b"b"),
        place(5, &far),
        place(5, b"d"),
    ];
    assert_eq!(places(&table, number), all);
    table.remove_place(number, 5, &far).unwrap();
    table.remove_place(number, 1, b"a").unwrap();
    table.remove_place(number, 1, b"none").unwrap();
    assert_eq!(places(&table, number), [place(1, b"b"), place(5, b"d")]);
    table.set_place(number, 6, &far).unwrap();
    assert_eq!(places(&table, number), [place(6, &far)]);
    table.remove_place(number, 6, &far).unwrap();
    assert_eq!(places(&table, number), []);
    table.add_place(number, 6, b"again").unwrap();
    for i in 0..100 {
        table
            .add_place(number, 7, format!("{i}").as_bytes())
            .unwrap();
    }
    let kept = places(&table, number);
    assert!(kept.len() <= ALIASES_MAX + 2 && kept.contains(&place(7, b"99")));
    table.remove(number).unwrap();
    assert_eq!(table.get(number).unwrap(), None);
}

#[test]
fn removed_records_give_their_disk_space_back() {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.unwrap();
    let mut table = open(folder.path());
    for i in 0..20_000 {
        let number = table.add(object(100 + i % 50, ROOT, &long(60))).unwrap();
        table.remove(number).unwrap();
    }
    use std::os::unix::fs::MetadataExt;
    let used = table.objects.metadata().unwrap().blocks() * 512;
    assert!(used <= 64 << 10, "{used}");
    assert!(table.index.entries <= 1 << 16);
}

#[test]
fn the_index_grows_with_the_records() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = open(folder.path());
    let numbers: Vec<u64> = (0..3000)
        .map(|i| table.add(object(100 + i, ROOT, b"x")).unwrap())
        .collect();
    assert!(table.index.entries >= 4096);
    for (i, number) in numbers.iter().enumerate() {
        let found = table.find(&identity(100 + i as u64, 1)).unwrap();
        assert_eq!(found.map(|(number, _)| number), Some(*number));
    }
}

#[test]
fn a_damaged_table_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).close().unwrap();
    let path = folder.path().join(OBJECTS);
    let mut bytes = fs::read(&path).unwrap();
    bytes[20] ^= 1;
    fs::write(&path, bytes).unwrap();
    let opened = HandleTable::open(folder.path(), true, KEY, || panic!("it is not new"));
    assert!(matches!(opened, Err(TableRefused::Damaged)));
}

#[test]
fn a_table_without_a_handle_key_gets_one_and_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let objects = folder.path().join(OBJECTS);
    let key_in_file = || fs::read(&objects).unwrap()[88..104].to_vec();
    // As a version without keys has left it.
    let mut table = open(folder.path());
    table.header.handle_key = NO_KEY;
    table.close().unwrap();
    drop(table);
    fs::set_permissions(&objects, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(key_in_file(), [0; 16]);

    assert_eq!(open(folder.path()).header().handle_key, KEY);
    assert_eq!(key_in_file(), KEY.0);
    let mode = fs::metadata(&objects).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "others could read the key");
    let other = HandleKey([6; 16]);
    let again = HandleTable::open(folder.path(), true, other, || panic!("it is not new"));
    let again = again.unwrap_or_else(|_| panic!("it opens"));
    assert_eq!(again.header().handle_key, KEY);
}

#[test]
fn table_of_a_version_that_did_not_know_its_own_file_keeps_its_handles() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = open(folder.path());
    table.header.file = ObjectIdentity::default();
    table.close().unwrap();
    drop(table);
    let again = |instance| {
        let first = || Header::new(instance, identity(2, 1), false, 0);
        let table = HandleTable::open(folder.path(), true, HandleKey([6; 16]), first);
        let table = table.unwrap_or_else(|_| panic!("it opens"));
        (table.header().instance, table.header().handle_key)
    };
    assert_eq!(again(8), (7, KEY));
    // Since then it knows.
    let objects = folder.path().join(OBJECTS);
    fs::copy(&objects, folder.path().join("copy")).unwrap();
    fs::rename(folder.path().join("copy"), &objects).unwrap();
    assert_eq!(again(9), (9, HandleKey([6; 16])));
    assert_eq!(again(10), (9, HandleKey([6; 16])));
}

#[test]
fn copy_of_a_table_beside_an_index_of_another_time_finds_its_records() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = open(folder.path());
    let number = table.add(object(9, ROOT, b"x")).unwrap();
    table.close().unwrap();
    drop(table);
    let (objects, copy) = (folder.path().join(OBJECTS), folder.path().join("copy"));
    fs::copy(&objects, &copy).unwrap();
    let mut table = open(folder.path());
    table.remove(number).unwrap();
    table.close().unwrap();
    drop(table);
    fs::rename(&copy, &objects).unwrap();
    let found = open(folder.path()).find(&identity(9, 1)).unwrap();
    assert_eq!(found.map(|(number, _)| number), Some(number));
}
