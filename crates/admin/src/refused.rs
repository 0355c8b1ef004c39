//! Why a change is not made.

use std::fmt;
use std::path::PathBuf;

use api::{Generation, PlanLine};
use control::{EditProblem, ObjectPath, Problems, object_at};

/// Why a document is not served. Nothing has changed but what a line says.
#[derive(Debug)]
pub(crate) enum NotApplied {
    /// It cannot be read, or has mistakes.
    Mistakes(Problems),
    /// What is wrong with a change of single objects.
    Edit(Vec<EditProblem>),
    /// What changes at a restart alone, a line each.
    Fixed(Vec<String>),
    /// What would disturb, and all else.
    Disturbs(Vec<PlanLine>),
    /// What could not be done, and could not be taken back.
    Failed(Vec<String>),
    /// The generation that is served is another than the change is for.
    Conflict(Box<Generation>),
    /// The file is not as weft has read or written it; why it cannot be read, if it cannot.
    FileChanged(PathBuf, Option<Problems>),
    /// What keeps it from being kept, and what could not be taken back.
    NotKept(Vec<String>),
    /// There is no such generation.
    NoGeneration(u64),
    /// Another request, which made this generation, had the same key.
    KeyReused(u64),
    /// It changes who may ask, and whoever asks for it is no admin.
    Denied,
    /// Others are being made.
    Busy,
}

/// Mistakes of one change that are told.
const PROBLEMS_MAX: usize = 100;

impl NotApplied {
    /// What is wrong with a text that a change of `object` has made: nobody knows its lines.
    pub(crate) fn of_object(object: &ObjectPath, text: &str, problems: &Problems) -> NotApplied {
        // Each is looked for in the text.
        let told = problems.list.iter().take(PROBLEMS_MAX).map(|problem| {
            let found = object_at(text, problem);
            let (object, field) = found.unwrap_or_else(|| (object.clone(), None));
            EditProblem::of_text(&object, field.as_deref(), &problem.text)
        });
        let more = problems.list.len().saturating_sub(PROBLEMS_MAX);
        let more = (more > 0).then(|| EditProblem {
            object: object.clone(),
            field: None,
            reason: format!("{more} mistakes more are not listed"),
            hint: "mend those above first".to_owned(),
        });
        NotApplied::Edit(told.chain(more).collect())
    }

    /// What kind of problem it is.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            NotApplied::Mistakes(_) => "invalid-file",
            NotApplied::Edit(_) => "invalid-object",
            NotApplied::Fixed(_) => "needs-restart",
            NotApplied::Disturbs(_) => "disturbs",
            NotApplied::Failed(_) => "not-done",
            NotApplied::Conflict(_) => "generation-conflict",
            NotApplied::FileChanged(..) => "file-changed",
            NotApplied::NotKept(_) => "not-kept",
            NotApplied::NoGeneration(_) => "no-generation",
            NotApplied::KeyReused(_) => "key-reused",
            NotApplied::Denied => "denied",
            NotApplied::Busy => "busy",
        }
    }
}

impl fmt::Display for NotApplied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotApplied::Mistakes(problems) => write!(f, "{problems}"),
            NotApplied::Edit(problems) => {
                let all: Vec<_> = problems.iter().map(EditProblem::to_string).collect();
                f.write_str(&all.join("\n"))
            }
            NotApplied::Fixed(lines) | NotApplied::Failed(lines) => f.write_str(&lines.join("; ")),
            NotApplied::Disturbs(lines) => {
                let count = lines.iter().filter(|line| line.disturbs).count();
                write!(
                    f,
                    "{count} of {} changes cut hosts or lose what is in memory: ask for it \
                     (disconnect), or leave them out",
                    lines.len()
                )
            }
            NotApplied::Conflict(now) => write!(
                f,
                "generation {} is served, which uid {} has made ({}): look at it, and change that",
                now.generation, now.uid, now.verb
            ),
            NotApplied::FileChanged(file, Some(unread)) => write!(
                f,
                "{unread}: put it back (`weft dump > {}` writes what is served, without secrets), and ask again",
                file.display()
            ),
            NotApplied::FileChanged(file, None) => {
                let file = file.display();
                write!(
                    f,
                    "{file} is not as weft knows it: it was edited: `weft apply -c {file}` or \
                     SIGHUP serves what it says now, and further changes come on top of that"
                )
            }
            NotApplied::NotKept(lines) => write!(
                f,
                "the change cannot be kept over a restart, so it is not made: {}",
                lines.join("; ")
            ),
            NotApplied::NoGeneration(number) => write!(
                f,
                "there is no generation {number}: `weft history` lists those that there are"
            ),
            NotApplied::KeyReused(number) => write!(
                f,
                "another request has had this Idempotency-Key and made generation {number}: give \
                 each request a key of its own"
            ),
            NotApplied::Denied => f.write_str("it changes [admin], which needs the role admin"),
            NotApplied::Busy => {
                f.write_str("other changes are being made: ask again when they are over")
            }
        }
    }
}
