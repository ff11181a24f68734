//! `ckpt restart`: brings a program back and is its parent.

mod addresses;
mod arguments;
mod automatic;
mod copied;
mod copy_wish;
mod detach;
mod ids;
mod inside;
mod leftovers;
mod owner;
mod progress;
mod stdio;

use std::io::IsTerminal;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ckpt_store::{AttemptRow, Store, StoreOptions, keep_to_this_thread, use_all_processors};
use ckpt_wire::ENV_DIR;

use super::interval::interval_ms;
use super::on_term::{self};
use super::pid_file::PidFile;
use super::progress_bar::Progress;
use super::run::store_dir;
use super::{absolute, first_pid, which_checkpoint};
use crate::audit;
use crate::core_dumps;
use crate::error::{Error, Result, exit_code};
use crate::filtered;
use crate::image::{self, AtTerminal, PathMap};
use crate::location::Location;
use crate::mapped_files;
use crate::parent::Parent;
use crate::restore::{Ids, OnRestart, Place, Rebuilt, RestoreOptions, Stage, Stdio, at_terminal, rebuild};
use crate::units;
pub use arguments::Arguments;
use arguments::{ENV_ON_RESTART, Namespace};
use inside::Inside;
use progress::{release_with_progress, show};

/// A program that is complete and stands still.
enum Built {
    /// Here, as our child.
    Here(Box<Rebuilt>),
    /// In a pid namespace of its own.
    Inside(Inside),
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    if arguments.lazy && matches!(Location::of(&arguments.dir)?, Location::Url(_)) {
        return Err(Error::Usage("--lazy needs a store in a directory: see ckpt copy".to_owned()));
    }
    addresses::check(&arguments.addresses)?;
    core_dumps::forbid();
    owner::become_owner(arguments)?;
    if arguments.as_owner {
        owner::keep_rights_to_ourselves();
    }
    let stdio = stdio::chosen(arguments.stdio.as_ref())?;
    if let Some(relay) = arguments.first_process {
        return inside::be_first_process(relay, |place| {
            rebuild_selected(arguments, (place, Ids::Chosen), stdio, &mut || {})
        });
    }
    let pid_file = arguments.pid_file.as_deref().map(PidFile::prepare).transpose()?;
    let pid_file = pid_file.as_ref();
    if arguments.detach {
        return detach::in_intermediate_process(|| match build(arguments, stdio, &mut || {})? {
            Built::Here(rebuilt) => {
                let pid = rebuilt.pid();
                release(pid, pid_file, || release_with_progress(*rebuilt))?;
                automatic::go_on(pid);
                Ok(pid)
            }
            Built::Inside(inside) => release(inside.pid(), pid_file, || inside.release()).map(|()| inside.pid()),
        });
    }
    let mut parent = Parent::prepare()?.save_at_term(on_term::chosen(arguments.on_term.as_deref())?);
    // Until the program is complete, our end is its end.
    match parent.interruptible(|listen| build(arguments, stdio.clone(), listen))? {
        Built::Here(rebuilt) => {
            let pid = rebuilt.pid();
            let there = rebuilt.at_terminal();
            first_pid::leave_lower_ones()?;
            parent.release(pid, there, || release(pid, pid_file, || release_with_progress(*rebuilt)))?;
            automatic::go_on(pid);
            if pid == 1 {
                // The program is pid 1, and waits for our end.
                return Ok(exit_code::DONE);
            }
            parent.follow(pid)
        }
        Built::Inside(inside) => {
            let (pid, there) = (inside.pid(), regained(arguments, &stdio)?);
            let there =
                AtTerminal { foreground: there.foreground.and_then(|group| inside.outer_group(group)), ..there };
            parent.release(pid, there, || release(pid, pid_file, || inside.release()))?;
            parent.follow_inside(inside.pid(), inside.into_relay())
        }
    }
}

/// Lets program `pid` run, and says before where.
fn release(pid: i32, pid_file: Option<&PidFile>, run: impl FnOnce() -> Result<()>) -> Result<()> {
    if let Some(file) = pid_file {
        file.write(pid)?;
    }
    let released = run();
    if released.is_err() {
        pid_file.into_iter().for_each(PidFile::remove);
    }
    released
}

/// Rebuilds the chosen checkpoint, here if that is possible and allowed. Calls `listen` as soon as there may be another thread.
fn build(arguments: &Arguments, stdio: Stdio, listen: &mut dyn FnMut()) -> Result<Built> {
    let ids = ids::of_this_place(arguments.namespace)?;
    match is_alone(ids) {
        false => listen(),
        true => {
            keep_to_this_thread()?;
            filtered::make_no_child(true);
        }
    }
    let act = |record: &mut audit::Record| {
        refuse_second_life(arguments, record)?;
        build_where_allowed(arguments, ids, stdio, listen)
    };
    match arguments.as_owner {
        true => audit::of_store_for_root("restart", &arguments.dir, act),
        false => audit::of_store("restart", &arguments.dir, act),
    }
}

/// Whether this process makes no thread before the program's processes are there: a thread would take an id, and none would be in the
/// restarter where pid 1 becomes the program.
fn is_alone(ids: Ids) -> bool {
    matches!(ids, Ids::Reached { .. }) || std::process::id() == 1
}

fn build_where_allowed(arguments: &Arguments, ids: Ids, stdio: Stdio, listen: &mut dyn FnMut()) -> Result<Built> {
    let mut why_not_here = None;
    if arguments.namespace != Namespace::Always {
        let may_be_elsewhere = arguments.namespace == Namespace::Auto && ids == Ids::Chosen;
        match rebuild_selected(arguments, (Place::AsStarted, ids), stdio, listen) {
            Err(error @ Error::IdsNotToBeHad { .. }) if may_be_elsewhere => {
                why_not_here = Some(error);
            }
            outcome => return outcome.map(|rebuilt| Built::Here(Box::new(rebuilt))),
        }
    }
    match (Inside::build(), why_not_here) {
        (Ok(inside), why) => {
            let why = why.map_or(String::new(), |why| format!(" ({})", why.reason()));
            crate::say!("{}{why}", inside.what_is_given_up());
            Ok(Built::Inside(inside))
        }
        (Err(error), None) => Err(error),
        (Err(error), Some(why)) => Err(Error::Inside {
            message: format!("{}; and in a pid namespace of its own: {error}", why.reason()),
            exit_code: error.exit_code(),
        }),
    }
}

/// Says at a terminal what comes back, and from when. Elsewhere standard error is the program's, and has its lines alone.
fn say_what_comes_back(row: &AttemptRow) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let sealed = row.sealed_unix_s.unwrap_or_default();
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs().saturating_sub(sealed));
    crate::say!(
        "restarting {}: checkpoint {} of {}, {} ago",
        row.name,
        row.id,
        units::local_time(sealed),
        units::ago(passed)
    );
}

/// See [`leftovers`].
fn refuse_second_life(arguments: &Arguments, record: &mut audit::Record) -> Result<()> {
    let Selected { store, id, .. } = Selected::by(arguments)?;
    let manifest = store.manifest(id).map_err(|error| which_checkpoint::or_dropped(&store, id, error.into()))?;
    let job = image::job_of(&manifest)?;
    record.number("checkpoint", id).program_of(job.root().uids[0]);
    if arguments.as_owner {
        owner::refuse_more(&job, &arguments.dir)?;
    }
    if arguments.copy.is_none() {
        leftovers::refuse(&job, arguments.end_leftovers)?;
    }
    say_what_comes_back(&manifest.row);
    Ok(())
}

/// What the user has chosen.
struct Selected {
    store: Store,
    id: u64,
    /// None: a copy that has no store.
    next_store_dir: Option<PathBuf>,
}

impl Selected {
    fn by(arguments: &Arguments) -> Result<Selected> {
        let dir = &arguments.dir;
        let location = Location::of(dir)?;
        let next_store_dir = next_store_dir(arguments, &location)?;
        let trust = StoreOptions { trust_owner: arguments.trust_owner, ..StoreOptions::default() };
        let store = location.open(&trust)?;
        let id = which_checkpoint::to_restart(dir, &store.attempts()?, arguments.id, arguments.job.as_deref())?;
        let settle = if arguments.copy.is_some() { mapped_files::wait_until_complete } else { mapped_files::settle };
        settle(&store, id).map_err(|error| which_checkpoint::or_dropped(&store, id, error))?;
        Ok(Selected { store, id, next_store_dir })
    }
}

/// What the program regains of the terminal, which only a process out here can give it.
fn regained(arguments: &Arguments, stdio: &Stdio) -> Result<AtTerminal> {
    let Selected { store, id, .. } = Selected::by(arguments)?;
    let manifest = store.manifest(id).map_err(|error| which_checkpoint::or_dropped(&store, id, error.into()))?;
    at_terminal(image::job_of(&manifest)?, stdio)
}

/// Rebuilds the chosen checkpoint at `place`. The store is closed again: its descriptors are of no use to a parent.
fn rebuild_selected(
    arguments: &Arguments,
    (place, ids): (Place, Ids),
    stdio: Stdio,
    listen: &mut dyn FnMut(),
) -> Result<Rebuilt> {
    let Selected { store, id, next_store_dir } = Selected::by(arguments)?;
    log::info!("restarting checkpoint {id} of {}", arguments.dir.display());
    let (paths, force) = (path_map(&arguments.maps)?, arguments.force);
    let interval_ms = arguments.interval.as_deref().and_then(interval_ms);
    let clocks = arguments.clocks.into();
    let lazy = arguments.lazy;
    let copy = arguments.copy.as_ref().map(copy_wish::CopyWish::copied).transpose()?;
    let on_restart = on_restart(arguments);
    let (store_dir, addresses) = (next_store_dir, arguments.addresses.clone());
    let options = RestoreOptions {
        store_dir,
        copy,
        on_restart,
        force,
        place,
        ids,
        clocks,
        paths,
        addresses,
        stdio,
        interval_ms,
        lazy,
    };
    if let Some(copy) = &options.copy {
        log::info!("the program becomes copy {}", copy.id);
    }
    rebuild_with_progress(&store, id, &options, listen)
}

/// What is executed when the program is complete, by the option or the environment.
fn on_restart(arguments: &Arguments) -> Option<OnRestart> {
    let by_environment = || std::env::var_os(ENV_ON_RESTART);
    let command = arguments.on_restart.clone().or_else(by_environment).filter(|command| !command.is_empty())?;
    Some(OnRestart { command, timeout: arguments.on_restart_timeout })
}

/// Where the program's next checkpoints go: into the store it comes from, if that is a directory. From a URL the choice
/// is the user's, and there is no default: a directory of the program's first host may not even exist on this one.
fn next_store_dir(arguments: &Arguments, location: &Location) -> Result<Option<PathBuf>> {
    if arguments.copy.is_some() {
        let dir = copied::next_dir(arguments, location)?;
        return dir.map(made).transpose();
    }
    match (location, &arguments.next_dir) {
        (Location::Directory(dir), None) => absolute(dir).map(Some),
        (Location::Url(url), None) if std::env::var_os(ENV_DIR).is_none_or(|dir| dir.is_empty()) => {
            Err(Error::Usage(format!(
                "{url} cannot hold the program's next checkpoints; name a local directory for them with --dir or CKPT_DIR"
            )))
        }
        (_, next) => store_dir(next.as_deref()).and_then(made).map(Some),
    }
}

/// The store in `dir`. The program is told the path only if it is there.
fn made(dir: PathBuf) -> Result<PathBuf> {
    Location::Directory(dir.clone()).create_or_open_by_environment(&StoreOptions::default())?;
    Ok(dir)
}

fn path_map(pairs: &[(PathBuf, PathBuf)]) -> Result<PathMap> {
    let bytes = |path: &Path| absolute(path).map(|path| path.into_os_string().into_vec());
    // The user's word: links on it are followed now, and none later.
    let resolved = |path: &Path| bytes(&path.canonicalize().unwrap_or_else(|_| path.to_owned()));
    let pairs: Vec<_> = pairs.iter().map(|(old, new)| Ok((bytes(old)?, resolved(new)?))).collect::<Result<_>>()?;
    Ok(PathMap::new(pairs))
}

fn rebuild_with_progress(
    store: &Store,
    id: u64,
    options: &RestoreOptions,
    listen: &mut dyn FnMut(),
) -> Result<Rebuilt> {
    let (mut bar, this) = (Progress::start(), std::process::id());
    let rebuilt = rebuild(store, id, options, &mut |stage, done, total| match stage {
        Stage::Born => {
            filtered::make_no_child(false);
            // Signals are no longer ours to take where pid 1 is becoming the program.
            if std::process::id() == this {
                listen();
            }
            if (is_alone(options.ids) || std::process::id() != this)
                && let Err(error) = use_all_processors()
            {
                log::warn!("memory is read on one processor: {error}");
            }
        }
        stage => show(&mut bar, stage, done, total),
    });
    bar.end();
    rebuilt.map_err(|error| which_checkpoint::or_dropped(store, id, error))
}
