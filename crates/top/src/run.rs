//! On a terminal, until a key ends it.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::app::{App, Wish};
use crate::look::{Evicts, Look, LookSource};
use crate::screen::draw;

/// How soon a key is heard.
const KEYS_EVERY: Duration = Duration::from_millis(50);

/// What the thread that asks has to say.
enum Told {
    Look(Result<Box<Look>, String>),
    Evicted(Result<Vec<String>, String>),
}

/// Shows what is done, a look every `delay`. The terminal is as it was when this ends, by a panic
/// too.
///
/// # Errors
/// There is no terminal, or it fails; the first look fails, with the reason.
pub fn run(source: impl LookSource + 'static, delay: Duration) -> io::Result<Result<(), String>> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let why = "weft top needs a terminal: --json prints lines for programs";
        return Ok(Err(why.to_owned()));
    }
    let mut app = App::default();
    match Look::take(&source, None) {
        Ok(look) => app.show(Ok(look)),
        Err(why) => return Ok(Err(why)),
    }
    let (wish, wishes) = channel();
    let (tell, told) = channel();
    let since = app.looks.last().map(|look| look.since().to_owned());
    thread::spawn(move || ask(&source, since, delay, (&wishes, &tell)));
    // By a panic, too, the terminal is given back.
    let mut terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
    let ended = show(&mut terminal, app, (&wish, &told));
    ratatui::restore();
    ended.map(Ok)
}

/// Shows what comes and does what keys ask for, until one ends it.
fn show(
    terminal: &mut DefaultTerminal,
    mut app: App,
    (wish, told): (&Sender<Evicts>, &Receiver<Told>),
) -> io::Result<()> {
    let mut is_new = true;
    loop {
        if std::mem::take(&mut is_new) {
            terminal.draw(|frame| draw(frame, &app))?;
        }
        if event::poll(KEYS_EVERY)? {
            is_new = true;
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match app.on_key(key) {
                    Wish::Nothing => {}
                    Wish::Quit => return Ok(()),
                    Wish::Evict(what) => {
                        app.message = Some("asking weft to end it".to_owned());
                        // The thread listens as long as this is here.
                        let _ = wish.send(what);
                    }
                },
                _ => {}
            }
        }
        loop {
            match told.try_recv() {
                Ok(Told::Look(look)) => app.show(look.map(|look| *look)),
                Ok(Told::Evicted(Ok(done))) => app.message = Some(done.join("; ")),
                Ok(Told::Evicted(Err(why))) => app.message = Some(why),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    return Err(io::Error::other("the thread that asks weft has ended"));
                }
            }
            is_new = true;
        }
    }
}

/// Asks until no one listens: a target that is slow to answer holds up no key.
fn ask(
    source: &dyn LookSource,
    mut since: Option<String>,
    delay: Duration,
    (wishes, tell): (&Receiver<Evicts>, &Sender<Told>),
) {
    loop {
        let told = match wishes.recv_timeout(delay) {
            Ok(what) => Told::Evicted(source.evict(&what)),
            Err(RecvTimeoutError::Timeout) => {
                let look = Look::take(source, since.as_deref());
                if let Ok(look) = &look {
                    since = Some(look.since().to_owned());
                }
                Told::Look(look.map(Box::new))
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if tell.send(told).is_err() {
            return;
        }
    }
}
