//! The loop: mail, deadlines, and what idling costs, under each driver.

use mem::{Budget, Pool};
use needs::each_driver;
use reactor::{
    AnyDriver, Choice, Completion, DiskFile, Driver, DriverConfig, FileIo, Handler, Mailbox, Nanos,
    RunConfig, RunStats, mailbox, open, run,
};
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

enum Letter {
    Number(u64),
    ReadFile,
    Stop,
}

/// Notes what happens, and the turns between.
#[derive(Default)]
struct Notes {
    numbers: Vec<u64>,
    files: u32,
    turns: u32,
    deadline: Option<Nanos>,
    deadlines: u32,
    files_asked: u32,
    is_told_to_stop: bool,
}

impl Handler<AnyDriver, Letter> for Notes {
    fn on_completion(&mut self, _: &mut AnyDriver, completion: Completion) {
        match completion {
            Completion::File { token: 5, result } => assert_eq!(result.unwrap(), 0),
            other => panic!("{other:?}"),
        }
        self.files += 1;
    }

    fn on_mail(&mut self, driver: &mut AnyDriver, letter: Letter) {
        match letter {
            Letter::Number(number) => self.numbers.push(number),
            Letter::Stop => self.is_told_to_stop = true,
            Letter::ReadFile => {
                let file = Arc::new(DiskFile::from(File::open("/dev/null").unwrap()));
                let buf = driver.pool().get(512).unwrap();
                // The process ends with the test; the buffer need not.
                let range = buf.range();
                std::mem::forget(buf);
                driver.read_at(&file, range, 0, 5);
                self.files_asked += 1;
            }
        }
    }

    fn on_turn(&mut self, _: &mut AnyDriver) {
        self.turns += 1;
    }

    fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    fn on_deadline(&mut self, _: &mut AnyDriver, now: Nanos) {
        assert!(now >= self.deadline.unwrap());
        self.deadlines += 1;
        self.deadline = (self.deadlines < 3).then_some(now + 2_000_000);
    }

    fn is_done(&self) -> bool {
        // The stop may overtake what takes its time.
        let has_all = self.deadline.is_none() && self.files == self.files_asked;
        self.is_told_to_stop && has_all
    }
}

fn reactor(choice: Choice, spin_us_max: u64, tell: Sender<Mailbox<Letter>>) -> (Notes, RunStats) {
    let pool = Pool::new(Budget::new(16 << 20)).unwrap();
    let mut driver = open(choice, &DriverConfig::default(), pool).unwrap();
    let (mailbox, mail) = mailbox(driver.waker());
    tell.send(mailbox).unwrap();
    let mut notes = Notes {
        deadline: Some(driver.now() + 2_000_000),
        ..Notes::default()
    };
    let stats = run(&mut driver, &mail, &mut notes, &RunConfig { spin_us_max }).unwrap();
    (notes, stats)
}

/// What a reactor that was told to stop has seen; it ends once all of it has come.
fn ended(thread: JoinHandle<(Notes, RunStats)>) -> (Notes, RunStats) {
    // Reached only when something never comes.
    let give_up = Instant::now() + Duration::from_secs(30);
    while !thread.is_finished() {
        assert!(Instant::now() < give_up, "it does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.join().unwrap()
}

#[each_driver]
fn mail_files_and_deadlines_all_arrive(choice: Choice) {
    for spin_us_max in [0, 50, u64::MAX] {
        let (tell, told) = channel();
        let thread = std::thread::spawn(move || reactor(choice, spin_us_max, tell));
        let mailbox = told.recv().unwrap();
        for number in 0..2000 {
            mailbox.send(Letter::Number(number));
            if number % 500 == 0 {
                mailbox.send(Letter::ReadFile);
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        mailbox.send(Letter::Stop);
        let (notes, stats) = ended(thread);
        assert!(notes.numbers.into_iter().eq(0..2000));
        assert_eq!(notes.deadlines, 3);
        assert_eq!(u64::from(notes.turns), stats.turns);
        assert_eq!(notes.files, 4);
    }
}

#[each_driver]
fn an_idle_reactor_sleeps(choice: Choice) {
    let (tell, told) = channel();
    let thread = std::thread::spawn(move || reactor(choice, 50, tell));
    let mailbox = told.recv().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    mailbox.send(Letter::Stop);
    let (_, stats) = ended(thread);
    // Three deadlines and the stop wake it; nothing else does.
    assert!(stats.sleeps <= 12, "{stats:?}");
    assert_eq!(stats.spins, 0, "{stats:?}");
}

#[each_driver]
fn a_reactor_with_the_largest_spin_limit_never_sleeps(choice: Choice) {
    let (tell, told) = channel();
    let thread = std::thread::spawn(move || reactor(choice, u64::MAX, tell));
    let mailbox = told.recv().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    mailbox.send(Letter::Stop);
    let (_, stats) = ended(thread);
    assert_eq!(stats.sleeps, 0);
    assert!(stats.spins > 100);
}
