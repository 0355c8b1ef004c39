//! Screens of a target that says what a test wants, in a terminal in memory.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use crate::app::{App, Mode, Wish};
use crate::look::{Evicts, Look, LookSource};
use crate::screen::draw;

/// Sizes that all screens work in.
const SIZES: [(u16, u16); 4] = [(80, 24), (40, 10), (200, 50), (20, 4)];

/// Answers one time after another, as one process or as several.
struct Script {
    boot: String,
    at: RefCell<u64>,
    /// How hosts are called.
    hosts: Vec<String>,
    fails: RefCell<VecDeque<bool>>,
    /// The address of an NFS client, whose figures are those of the host of that name.
    nfs_client: Option<String>,
}

impl Script {
    fn new(boot: &str, hosts: &[&str]) -> Script {
        Script {
            boot: boot.to_owned(),
            at: RefCell::new(0),
            hosts: hosts.iter().map(ToString::to_string).collect(),
            fails: RefCell::default(),
            nfs_client: None,
        }
    }

    fn with_nfs_client(self, address: &str) -> Script {
        let nfs_client = Some(address.to_owned());
        Script { nfs_client, ..self }
    }

    fn protocol(&self) -> &'static str {
        match self.nfs_client {
            Some(_) => "nfs",
            None => "nvme-tcp",
        }
    }

    fn clients(&self) -> Value {
        let clients = self.nfs_client.iter().map(|address| {
            json!({
                "id": "0x1", "name": "client", "address": address, "version": "4.2",
                "implementation": "", "status": "confirmed", "silent_ms": 0, "lease_ms": 90_000,
                "callback_path": null, "sessions": 1, "slots_used": 0, "slots": 64, "opens": 0,
                "locks": 0, "delegations": 0,
            })
        });
        json!({ "clients": clients.collect::<Vec<_>>() })
    }

    /// After `n` seconds each host has done its number times 100 writes of 4 KiB a second.
    fn figures(&self, n: u64) -> Value {
        let ops = |host: usize| {
            let writes = n * 100 * (host as u64 + 1);
            let times = json!({ "sum_ns": n * 1000, "buckets": [0, n] });
            json!({ "write": {
                "count": writes, "bytes": writes * 4096, "errors": n, "times": times,
                "sizes": [0, 0, 0, writes],
            } })
        };
        let stage =
            |stage, ns| json!({ "stage": stage, "times": { "sum_ns": n * ns, "buckets": [n] } });
        let hosts = self.hosts.iter().enumerate().map(|(at, host)| {
            json!({
                "host": host, "protocol": self.protocol(), "ops": ops(at),
                "stages": [stage("receive", 100), stage("queue", 300), stage("backend", 500),
                    stage("send", 100)],
            })
        });
        let counts = json!({
            "ios": n * 300, "io_bytes": n * 300 * 4096, "syscalls": n * 75, "copied_bytes": 0,
            "run_ns": n * 1_000_000_000, "spun_ns": n * 250_000_000, "slept_ns": n * 500_000_000,
            "connections": 2,
        });
        json!({
            "boot": self.boot, "unix_ms": 1_000 * n, "uptime_ns": n * 1_000_000_000,
            "bounds_ns": [512, 1024, 2048],
            "size_bounds": [512, 1024, 2048, 4096],
            "hosts": hosts.collect::<Vec<_>>(),
            "volumes": [{
                "volume": "disk0", "protocol": "nvme-tcp", "hosts": self.hosts.len(),
                "used_bytes": 3 << 20, "ops": ops(2),
            }],
            "stages": [], "connections": { "nvme-tcp": 2 }, "refusals": {},
            "reactors": [{ "reactor": 0, "cpu": 7, "answers": true, "counts": counts }],
            "nfs": { "clients": 0, "expired_clients": 0, "opens": 0, "locks": 0,
                "delegations": 0, "is_in_grace": false },
            "memory_bytes": 1 << 20, "memory_max_bytes": 1_u64 << 30, "blocking_work": 0,
        })
    }

    fn connections(&self, n: u64) -> Value {
        let all = self.hosts.iter().enumerate().map(|(at, host)| {
            json!({
                "id": format!("0-{at}"), "protocol": "nvme-tcp", "peer": "10.0.0.9:1",
                "local": "10.0.0.1:4420", "listener": null, "host": host, "target": "nqn.t",
                "state": "connected", "reactor": 0, "age_ms": 5000, "idle_ms": 0,
                "ios": n * 100, "io_bytes": n * 100 * 4096, "in_flight": 3, "held_bytes": 0,
                "waits_for_memory": false, "header_digest": false, "data_digest": false,
            })
        });
        let all: Vec<_> = all.collect();
        json!({ "connections": all, "has_more": false, "silent_reactors": 0 })
    }
}

impl LookSource for Script {
    fn get(&self, path: &str) -> Result<Value, String> {
        let place = path.split('?').next().unwrap_or_default();
        if place == "/v1/events" {
            *self.at.borrow_mut() += 1;
            if self.fails.borrow_mut().pop_front() == Some(true) {
                return Err("nothing answers".to_owned());
            }
        }
        let n = *self.at.borrow();
        let hosts = self.hosts.iter().map(|host| {
            json!({
                "name": host, "in_figures": host, "protocol": self.protocol(),
                "addresses": [self.nfs_client.as_deref().unwrap_or("10.0.0.9")], "targets": [],
                "connections": 1, "controllers": [], "sessions": [], "paths": [], "ios": 0,
                "io_bytes": 0, "in_flight": 3, "held_bytes": 0, "reservations": ["disk0"],
            })
        });
        let hosts: Vec<_> = hosts.collect();
        Ok(match place {
            "/v1/figures" => self.figures(n),
            "/v1/hosts" => json!({ "hosts": hosts, "has_more": false, "silent_reactors": 0 }),
            "/v1/connections" => self.connections(n),
            "/v1/nfs/clients" => self.clients(),
            "/v1/events" => {
                let event = json!({
                    "id": n, "boot": self.boot, "time": "2026-01-05T08:00:01.5Z", "level": "info",
                    "event": "connected", "text": "a host has come",
                    "details": { "host": self.hosts.first() },
                });
                json!({ "boot": self.boot, "last": n, "events": [event] })
            }
            _ => return Err(format!("{path} is not asked for")),
        })
    }

    fn evict(&self, what: &Evicts) -> Result<Vec<String>, String> {
        Ok(vec![format!("ended {what:?}")])
    }
}

/// What was seen so many times.
fn app_of(source: &Script, looks: usize) -> App {
    let mut app = App::default();
    look(&mut app, source, looks);
    app
}

fn look(app: &mut App, source: &Script, looks: usize) {
    for _ in 0..looks {
        let since = app.looks.last().map(|last| last.since().to_owned());
        app.show(Look::take(source, since.as_deref()));
    }
}

fn screen(app: &App, (width, height): (u16, u16)) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("in memory");
    terminal.draw(|frame| draw(frame, app)).expect("in memory");
    let buffer = terminal.backend().buffer();
    let row = |y| {
        (0..width)
            .map(|x| buffer[(x, y)].symbol())
            .collect::<String>()
    };
    (0..height).map(row).collect()
}

fn press(app: &mut App, code: KeyCode) -> Wish {
    app.on_key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn keys(app: &mut App, keys: &str) {
    for key in keys.chars() {
        press(app, KeyCode::Char(key));
    }
}

#[test]
fn hosts_are_shown_with_rates_times_and_waits_the_busiest_at_the_top() {
    let source = Script::new("a", &["nqn.slow", "nqn.fast"]);
    let rows = screen(&app_of(&source, 3), (100, 12));
    assert!(
        rows[0].starts_with("weft  00:00:03Z  up 3s  300 I/O/s  1.2MiB/s  2 conn"),
        "{rows:#?}"
    );
    assert!(rows[1].starts_with("1 hosts  2 volumes  3 connections"));
    let words = |row: &str| {
        row.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let heads = ["HOST", "R/S", "W/S", "BYTES/S", "P99", "QD", "WAIT"];
    assert_eq!(words(&rows[2])[..7], heads);
    let fast = ["nqn.fast", "0", "200", "800KiB", "1.0us", "3", "rqqqbbbbbs"];
    assert_eq!(words(&rows[3])[..7], fast);
    assert_eq!(words(&rows[4])[..3], ["nqn.slow", "0", "100"]);
}

#[test]
fn every_tab_and_mode_is_drawn_in_every_size() {
    let source = Script::new("a", &["nqn.a", "nqn.b"]);
    for looks in 0..3 {
        let mut app = app_of(&source, looks);
        for size in SIZES {
            for tab in "123456".chars() {
                for mode in ["", "?", "/"] {
                    keys(&mut app, &format!("{tab}{mode}"));
                    let rows = screen(&app, size);
                    assert_eq!(rows.len(), usize::from(size.1));
                    press(&mut app, KeyCode::Esc);
                }
                press(&mut app, KeyCode::Enter);
                screen(&app, size);
                press(&mut app, KeyCode::Esc);
            }
        }
    }
}

#[test]
fn small_terminal_has_names_of_all_tabs_and_the_figures_that_it_has_room_for() {
    let source = Script::new("a", &["nqn.2014-08.org.nvmexpress:uuid:00000000-0001"]);
    let mut app = app_of(&source, 2);
    let rows = screen(&app, (40, 10));
    assert_eq!(
        rows[1].trim_end(),
        "1 hosts 2 vols 3 conn 4 react 5 nfs 6 ev"
    );
    assert!(
        rows[2].starts_with("HOST") && rows[2].contains("BYTES/S"),
        "{rows:#?}"
    );
    assert!(
        rows[3].starts_with("nqn.2\u{2026}") && rows[3].contains("400KiB"),
        "{rows:#?}"
    );
    for _ in 0..3 {
        press(&mut app, KeyCode::Right);
    }
    let rows = screen(&app, (40, 10));
    assert!(
        rows[2].contains("P99") && !rows[2].contains("R/S"),
        "{rows:#?}"
    );
}

#[test]
fn names_of_peers_cannot_command_the_terminal_or_turn_text_around() {
    let hostile = "nqn.\u{1b}[2J\u{7}\u{9b}31m\u{202e}evil\u{200b}\r\n";
    let source = Script::new("a", &[hostile]);
    let mut app = app_of(&source, 2);
    for (tab, mode) in [("1", ""), ("3", ""), ("6", ""), ("1", "k"), ("1", "")] {
        keys(&mut app, &format!("{tab}{mode}"));
        let text = screen(&app, (120, 12)).concat();
        let is_bad = |c: char| c.is_control() || matches!(c, '\u{202e}' | '\u{200b}');
        assert!(!text.contains(is_bad), "{text:?}");
        assert!(text.contains("nqn.?[2J??31m?evil?"), "{text:?}");
        app.mode = Mode::Table;
    }
    press(&mut app, KeyCode::Enter);
    assert!(screen(&app, (120, 30)).concat().contains("nqn.?[2J"));
}

#[test]
fn lines_are_ordered_by_the_column_that_s_chooses_and_filtered_by_a_text() {
    let source = Script::new("a", &["nqn.b", "nqn.a", "nqn.c"]);
    let mut app = app_of(&source, 2);
    let names = |app: &App| {
        let lines = app.lines();
        let names = lines.iter().map(|line| line.cells[0].to_string());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&app), ["nqn.c", "nqn.a", "nqn.b"]);
    keys(&mut app, "r");
    assert_eq!(names(&app), ["nqn.b", "nqn.a", "nqn.c"]);
    // On to the first, past the last.
    while app.view().order != 0 {
        keys(&mut app, "s");
    }
    assert_eq!(names(&app), ["nqn.a", "nqn.b", "nqn.c"]);
    keys(&mut app, "/N.C");
    press(&mut app, KeyCode::Enter);
    assert_eq!(names(&app), ["nqn.c"]);
    assert!(screen(&app, (80, 8))[7].contains("with \"N.C\""));
    press(&mut app, KeyCode::Esc);
    assert_eq!(names(&app).len(), 3);
}

#[test]
fn chosen_line_stays_chosen_when_the_order_changes_and_its_detail_shows_its_history() {
    let source = Script::new("a", &["nqn.a", "nqn.b"]);
    let mut app = app_of(&source, 5);
    press(&mut app, KeyCode::Down);
    assert_eq!(app.chosen().map(|line| &*line.key), Some("nvme-tcp nqn.a"));
    keys(&mut app, "r");
    assert_eq!(app.chosen().map(|line| &*line.key), Some("nvme-tcp nqn.a"));
    press(&mut app, KeyCode::Enter);
    let rows = screen(&app, (80, 24));
    assert!(
        rows[2].starts_with("I/O/s: 100 now, 100 at most of 60 looks"),
        "{rows:#?}"
    );
    assert!(
        rows[4].starts_with("\u{2588}\u{2588}\u{2588}\u{2588} "),
        "{rows:#?}"
    );
    assert!(
        rows.iter()
            .any(|row| row.starts_with("host ") && row.contains("nqn.a"))
    );
    look(&mut app, &source, 100);
    assert_eq!(app.history(app.chosen().expect("a line")).len(), 60);
}

#[test]
fn detail_has_the_sizes_of_ios_and_the_time_of_each_stage() {
    let source = Script::new("a", &["nqn.a"]);
    let mut app = app_of(&source, 4);
    press(&mut app, KeyCode::Enter);
    let words = |app: &App| {
        let rows = screen(app, (60, 60));
        let words = |row: &String| row.split_whitespace().map(str::to_owned).collect();
        rows.iter().map(words).collect::<Vec<Vec<String>>>()
    };
    let has = |rows: &[Vec<String>], wanted: &str| {
        let wanted: Vec<_> = wanted.split(' ').collect();
        assert!(
            rows.iter().any(|row| *row == wanted),
            "{wanted:?}: {rows:#?}"
        );
    };
    let rows = words(&app);
    has(&rows, "size up to r/s w/s");
    has(&rows, "4.0KiB 0 100");
    has(&rows, "stage timed mean p99");
    has(&rows, "backend 3 0.5us 0.5us");
    has(&rows, "slowest op write");
    press(&mut app, KeyCode::Esc);
    keys(&mut app, "2");
    press(&mut app, KeyCode::Enter);
    let rows = words(&app);
    has(&rows, "hosts 1");
    has(&rows, "used 3.0MiB");
    has(&rows, "4.0KiB 0 300");
    assert!(
        !rows
            .iter()
            .any(|row| row.first().is_some_and(|word| word == "stage"))
    );
}

#[test]
fn reactor_has_the_cpu_that_it_is_pinned_to() {
    let source = Script::new("a", &["nqn.a"]);
    let mut app = app_of(&source, 2);
    keys(&mut app, "4");
    let rows = screen(&app, (100, 8));
    let words = |row: usize| rows[row].split_whitespace().take(3).collect::<Vec<_>>();
    assert_eq!(words(2), ["REACTOR", "CPU", "BUSY"]);
    assert_eq!(words(3), ["0", "7", "25"]);
}

#[test]
fn nfs_client_has_the_times_of_its_address_and_the_slowest_operation() {
    let source = Script::new("a", &["192.0.2.7"]).with_nfs_client("192.0.2.7");
    let mut app = app_of(&source, 2);
    keys(&mut app, "5");
    let rows = screen(&app, (160, 8));
    let heads: Vec<_> = rows[2].split_whitespace().collect();
    let cells: Vec<_> = rows[3].split_whitespace().collect();
    let at = heads
        .iter()
        .position(|head| *head == "P99")
        .expect("a column");
    assert_eq!(cells[at..at + 3], ["1.0us", "1.0us", "write"], "{rows:#?}");
}

#[test]
fn eviction_is_asked_for_once_more_before_it_is_wished() {
    let source = Script::new("a", &["nqn.a"]);
    let mut app = app_of(&source, 2);
    keys(&mut app, "k");
    assert!(screen(&app, (80, 6))[5].contains("end host nqn.a? y: yes"));
    assert_eq!(press(&mut app, KeyCode::Enter), Wish::Nothing);
    assert_eq!(app.mode, Mode::Table);
    keys(&mut app, "3k");
    let wish = press(&mut app, KeyCode::Char('y'));
    assert_eq!(wish, Wish::Evict(Evicts::Connection("0-0".to_owned())));
    keys(&mut app, "4k");
    assert_eq!(app.mode, Mode::Table, "a reactor is not ended");
    assert!(app.message.is_some());
    assert_eq!(press(&mut app, KeyCode::Char('q')), Wish::Quit);
}

#[test]
fn target_that_does_not_answer_and_starts_anew_is_told_and_its_counts_begin_anew() {
    let (first, second) = (Script::new("a", &["nqn.a"]), Script::new("b", &["nqn.a"]));
    let mut app = app_of(&first, 6);
    first.fails.borrow_mut().push_back(true);
    look(&mut app, &first, 1);
    let rows = screen(&app, (80, 8));
    assert!(rows[7].contains("weft does not answer; asking again: nothing answers"));
    assert!(rows[3].starts_with("nqn.a"), "what was seen last stays");
    look(&mut app, &second, 1);
    let rows = screen(&app, (80, 8));
    assert!(rows[7].contains("weft has started anew"), "{rows:#?}");
    assert!(
        rows[2].contains("the second look has the first figures"),
        "{rows:#?}"
    );
    look(&mut app, &second, 1);
    assert!(screen(&app, (80, 8))[3].contains("100"));
    let events: BTreeMap<_, _> = (app.sheets[5].lines.iter())
        .map(|line| (&line.key, ()))
        .collect();
    assert_eq!(events.len(), 8, "those of both");
}

#[test]
fn lines_for_programs_have_what_was_done_between_two_looks() {
    let source = Script::new("a", &["nqn.a"]);
    let mut out = Vec::new();
    let printed = crate::print(&source, (Duration::ZERO, Some(2)), &mut out);
    assert_eq!(printed.expect("in memory"), Ok(()));
    let text = String::from_utf8(out).expect("UTF-8");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    assert_eq!(lines.len(), 2);
    let host = &lines[1]["hosts"][0];
    assert_eq!(
        (&host["host"], &host["writes_per_s"]),
        (&json!("nqn.a"), &json!(100.0))
    );
    assert_eq!(host["backend_ns"], 500);
    assert_eq!(lines[0]["volumes"][0]["reserved_by"][0], "nqn.a");
    assert_eq!(lines[0]["reactors"][0]["busy_percent"], 25.0);
    assert_eq!(lines[1]["events"].as_array().map(Vec::len), Some(1));
    source.fails.borrow_mut().push_back(true);
    let refused = crate::print(&source, (Duration::ZERO, Some(1)), &mut Vec::new());
    assert_eq!(
        refused.expect("in memory"),
        Err("nothing answers".to_owned())
    );
}
