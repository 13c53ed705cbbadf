//! The server's life: made, started, stopped, killed. Everything here blocks: `mod.rs` puts it into a thread, and
//! `launch.rs` has the details of a start.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::folder::{Folder, free_port};
use super::launch::Refused;
use super::supervise::{End, Supervised};
use super::{Builder, Error, Installation, Stop};

/// Recovery after a kill may have much log to read.
pub(super) const START_PATIENCE: Duration = Duration::from_secs(120);
/// A fast stop writes everything out.
const STOP_PATIENCE: Duration = Duration::from_secs(60);
/// An immediate stop kills its own children after 5 s.
pub(super) const END_PATIENCE: Duration = Duration::from_secs(15);
/// How long the processes of a killed server may take to notice.
const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(super) struct Server {
    pub(super) folder: Folder,
    pub(super) installation: Installation,
    pub(super) password: String,
    pub(super) port: u16,
    pub(super) socket: PathBuf,
    pub(super) temporary: bool,
    pub(super) settings: Vec<(String, String)>,
    pub(super) pid: AtomicU32,
    running: Mutex<Option<Supervised>>,
}

impl Server {
    /// Makes what is missing and starts.
    pub(super) fn make(wish: Builder) -> Result<Self, Error> {
        let temporary = wish.folder.is_none();
        // Before the folder, so that a machine without PostgreSQL is told so and nothing is left behind.
        let any = wish
            .installation
            .clone()
            .map_or_else(Installation::find, Ok)?;
        let folder = match &wish.folder {
            Some(root) => Folder::kept(root, wish.fresh)?,
            None => Folder::temporary()?,
        };
        let mut server = Self {
            socket: PathBuf::new(),
            password: password(&folder)?,
            installation: match folder.data_major() {
                Some(major) if any.major() != major => {
                    Installation::find_major(major).map_err(|why| Error::OtherVersion {
                        folder: folder.root.clone(),
                        major,
                        why: Box::new(why),
                    })?
                }
                _ => any,
            },
            port: 0,
            temporary,
            settings: wish.settings,
            pid: AtomicU32::new(0),
            running: Mutex::new(None),
            folder,
        };
        server.prepare()?;
        server.socket = server.folder.socket()?;
        let mut tries = 0..5;
        loop {
            let last = server
                .folder
                .remembered("port")
                .and_then(|port| port.parse().ok());
            server.port = wish.port.map_or_else(|| free_port(last), Ok)?;
            server.folder.remember("port", &server.port.to_string())?;
            match server.start_once() {
                Ok(()) => return Ok(server),
                Err(Refused::PortTaken(_)) if wish.port.is_none() && tries.next().is_some() => {}
                Err(refused) => return Err(refused.into()),
            }
        }
    }

    pub(super) fn start(&self) -> Result<(), Error> {
        self.start_once().map_err(Error::from)
    }

    pub(super) fn stop(&self, how: Stop) -> Result<(), Error> {
        let mut running = self.running();
        let Some(process) = running.as_mut() else {
            return Ok(());
        };
        let (end, patience) = match how {
            Stop::Fast => (End::Fast, STOP_PATIENCE),
            Stop::Immediate => (End::Immediate, END_PATIENCE),
        };
        process.order(end);
        let in_time = process.wait(patience).is_some();
        if !in_time {
            process.order(End::Kill);
            process.wait(END_PATIENCE);
        }
        *running = None;
        if in_time {
            Ok(())
        } else {
            Err(self.slow("stop", patience, "it was killed".into()))
        }
    }

    pub(super) fn kill(&self) -> Result<(), Error> {
        let mut running = self.running();
        let Some(process) = running.as_mut() else {
            return Ok(());
        };
        process.order(End::Kill);
        let dead = process.wait(END_PATIENCE).is_some();
        *running = None;
        if dead {
            Ok(())
        } else {
            Err(self.slow("die", END_PATIENCE, String::new()))
        }
    }

    pub(super) fn is_running(&self) -> bool {
        // Locked means that it starts or stops right now.
        self.running.try_lock().is_ok_and(|mut running| {
            running
                .as_mut()
                .is_some_and(|process| process.ended().is_none())
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    fn start_once(&self) -> Result<(), Refused> {
        let mut running = self.running();
        if running
            .as_mut()
            .is_some_and(|process| process.ended().is_none())
        {
            return Ok(());
        }
        let started = Instant::now();
        loop {
            match self.try_start() {
                Err(Refused::Predecessor(_)) if started.elapsed() < PREDECESSOR_PATIENCE => {
                    thread::sleep(Duration::from_millis(50));
                }
                Err(refused) => return Err(refused),
                Ok(process) => {
                    *running = Some(process);
                    return Ok(());
                }
            }
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<Supervised>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let how = if self.temporary {
            Stop::Immediate
        } else {
            Stop::Fast
        };
        // Nobody is left to hear of a failure, and the closed pipe ends what does not obey.
        let _ = self.stop(how);
        if self.temporary {
            self.folder.remove();
        }
    }
}

/// Made once for each folder: 244 random bits.
fn password(folder: &Folder) -> Result<String, Error> {
    if let Some(password) = folder.remembered("password") {
        return Ok(password);
    }
    let password = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    folder.remember("password", &password)?;
    Ok(password)
}
