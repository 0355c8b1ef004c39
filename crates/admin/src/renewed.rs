//! Files of TLS that are replaced while weft runs: certificates end, and clients are revoked.

use std::convert::Infallible;
use std::fs;
use std::future::pending;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use server::AdminTls;
use tls::{ClientAuthorities, Identity, ServerSide};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use crate::served::locked;

/// How often a server looks whether files are others.
pub(crate) const EVERY: Duration = Duration::from_secs(60);

/// What a server shows and asks, of files as they were when they were last good.
#[derive(Debug)]
pub(crate) struct RenewedTls {
    files: AdminTls,
    now: Mutex<TlsRead>,
}

/// What the files were when they were read last.
#[derive(Debug)]
struct TlsRead {
    side: Arc<ServerSide>,
    /// What the files were like when they were read.
    stamps: Vec<FileStamp>,
    /// Why what is there now is not taken.
    wrong: Option<String>,
}

/// Inode, length and time of a file, or that it cannot be seen.
type FileStamp = Result<(u64, u64, i64, i64), io::ErrorKind>;

impl RenewedTls {
    /// Of files that must be good at the start.
    ///
    /// # Errors
    /// What of them cannot be used.
    pub fn read(files: &AdminTls) -> Result<Arc<RenewedTls>, String> {
        let stamps = stamps_of(files);
        Ok(Arc::new(RenewedTls {
            files: files.clone(),
            now: Mutex::new(TlsRead {
                side: side_of(files)?,
                stamps,
                wrong: None,
            }),
        }))
    }

    /// For the next connection.
    pub fn side(&self) -> Arc<ServerSide> {
        locked(&self.now).side.clone()
    }

    /// Why what the files are now is not taken; `None`: it is.
    pub fn wrong(&self) -> Option<String> {
        locked(&self.now).wrong.clone()
    }

    /// Takes the files where they are others than those that were read last. Wrong ones change
    /// nothing but what is told.
    pub fn look(&self) {
        let mut now = locked(&self.now);
        // What changes while it is read is read again at the next look.
        let stamps = stamps_of(&self.files);
        if stamps == now.stamps {
            return;
        }
        now.stamps = stamps;
        match side_of(&self.files) {
            Ok(side) => {
                (now.side, now.wrong) = (side, None);
                tracing::info!("[admin.tls]: renewed files hold from the next connection on");
            }
            Err(why) => {
                let why = format!(
                    "[admin.tls]: {why}: what was read before holds still: put files in its place \
                     that belong together"
                );
                tracing::warn!("{why}");
                now.wrong = Some(why);
            }
        }
    }
}

/// Looks at once and then `every` so long, for ever, where there are files.
pub(crate) async fn look_at_files(tls: Option<Arc<RenewedTls>>, every: Duration) -> Infallible {
    let Some(tls) = tls else {
        return pending().await;
    };
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let tls = tls.clone();
        let _ = spawn_blocking(move || tls.look()).await;
    }
}

fn side_of(files: &AdminTls) -> Result<Arc<ServerSide>, String> {
    let identity = Identity::read(&files.certificate, &files.key)?;
    let crl = files.client_crl.as_deref();
    let clients = files.client_ca.as_ref();
    let clients = clients.map(|ca| ClientAuthorities::read(ca, crl));
    ServerSide::new(identity, clients.transpose()?).map(Arc::new)
}

fn stamps_of(files: &AdminTls) -> Vec<FileStamp> {
    let AdminTls {
        certificate,
        key,
        client_ca,
        client_crl,
    } = files;
    let stamp = |path: &Path| {
        let there = fs::metadata(path).map_err(|error| error.kind())?;
        Ok((there.ino(), there.len(), there.mtime(), there.mtime_nsec()))
    };
    let all = [
        Some(certificate),
        Some(key),
        client_ca.as_ref(),
        client_crl.as_ref(),
    ];
    all.into_iter().flatten().map(|path| stamp(path)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tokio::time::{sleep, timeout};

    use super::*;

    /// How often a test looks.
    const SOON: Duration = Duration::from_millis(1);
    /// How long it waits for what never comes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A certificate and its key among the test data of `tls`, in a folder of the test's own.
    fn files_in(folder: &Path) -> AdminTls {
        let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/testdata");
        let [certificate, key] = ["server.pem", "server.key"].map(|name| {
            let path = folder.join(name);
            fs::copy(testdata.join(name), &path).expect("test data");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
            path
        });
        AdminTls {
            certificate,
            key,
            client_ca: None,
            client_crl: None,
        }
    }

    #[test]
    fn files_that_are_renewed_hold_after_the_next_look_and_wrong_ones_are_told_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = files_in(folder.path());
        let tls = RenewedTls::read(&files).expect("good files");
        let first = tls.side();
        let changes = async {
            let good = fs::read_to_string(&files.certificate).expect("there");
            fs::write(&files.certificate, format!("{good}\n")).expect("room");
            while Arc::ptr_eq(&tls.side(), &first) {
                sleep(SOON).await;
            }
            assert_eq!(tls.wrong(), None);
            let second = tls.side();
            fs::write(&files.certificate, "not a certificate").expect("room");
            while tls.wrong().is_none() {
                sleep(SOON).await;
            }
            assert!(Arc::ptr_eq(&tls.side(), &second), "the old one holds still");
        };
        let looks = look_at_files(Some(tls.clone()), SOON);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.expect("a runtime").block_on(async {
            tokio::select! {
                never = looks => match never {},
                done = timeout(PATIENCE, changes) => done.expect("it looks"),
            }
        });
    }
}
