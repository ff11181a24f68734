//! The agent's life: take checkpoints when asked or when it is time, until the program has ended.

use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ckpt_store::{AttemptRow, Depth, Store};
use ckpt_wire::settings::parse_mark;
use ckpt_wire::{Confinement, Control, ENV_MARK};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::geteuid;

use super::address::{Address, Trusted};
use super::behind::Behind;
use super::client::{self, Patience};
use super::news::{self, News};
use super::protocol::{READY, Reply, Request};
use super::recorded::recorded;
use super::request::{AgentOptions, CheckpointRequest, Method, Trigger, store_of};
use super::restart_script::write_restart_script;
use super::retention::Retention;
use super::store_options::{
    UsersWatch, copies_bytes, default_digest, digest_warning, options_of, tree_options, wanted_digest, wanted_method,
};
use super::usher::{Client, Usher};
use crate::capture::{
    self, Acquaintance, Event, Kinship, LeftOut, Lineage, Program, Settings, TreeOptions, WaitingCalls, find_loaded,
    find_or_adopt,
};
use crate::error::{Error, Result};
use crate::proc::oom::EndedFirst;
use crate::proc::{confinement, task};
use crate::units::printable;
use crate::{location, logging, restore, store_key, units};

/// How long a program may take from its start to the constructor of libckpt.so.
const LOADING_TIMEOUT: Duration = Duration::from_secs(10);
/// Environment variable: what is left of a job when its first process has ended is not to be checkpointed.
const ENDS_WITH_FIRST: &str = "CKPT_ENDS_WITH_FIRST";
/// How long another agent may hold the lock before it listens, and how long a process may take to be the first one.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

struct Agent {
    program: Program,
    /// Random number of the program's libckpt.so: another one after an exec.
    image: u64,
    /// What the processes of its job know one another by.
    kinship: Kinship,
    /// The pid of the one that the job has begun with.
    founder: i32,
    store: Store,
    /// How memory is stored at present.
    method: Method,
    tree: TreeOptions,
    lineage: Lineage,
    interval: Option<Duration>,
    retention: Retention,
    executable: PathBuf,
    /// Where the program's keeper can reach us.
    keeper_socket: PathBuf,
    /// Why the last checkpoint failed, if it did.
    failure: Option<String>,
    users: UsersWatch,
    /// What is stored behind the seals.
    behind: Behind,
}

/// Serves the job of the program until its first process ends. Returns early if another agent does so already.
pub fn serve(options: AgentOptions) -> Result<()> {
    let mut options = options;
    loop {
        let outcome = serve_one(&options);
        // It may have left the job to others, as daemons do, while we looked at it.
        let has_ended = || matches!(Program::find(options.pid), Err(Error::ProgramGone { .. }));
        if outcome.is_ok() || !has_ended() {
            return outcome;
        }
        match left_of_job()? {
            Some(pid) if pid != options.pid => options.pid = pid,
            _ => return outcome,
        }
    }
}

fn serve_one(options: &AgentOptions) -> Result<()> {
    let mut calls = WaitingCalls::default();
    // It may execute another program at any moment, as a shell does at once: what was read together is of one.
    let (program, control) = find(options, &mut calls)?;
    let pid = program.pid;
    capture::refuse_other_pid_namespace(pid)?;
    let directory = store_of(&control, options.dir.as_deref());
    location::refuse_url_in(&directory)?;
    let digest = wanted_digest(&control)?;
    let mut store_options = options_of(Some(digest.unwrap_or_else(|| default_digest(pid))), control.memory_bytes);
    let (method, tree) = (wanted_method(&control)?, tree_options(&control, &store_options)?);
    if method == Method::Tree {
        store_options.memory_bytes /= 2;
    }
    store_options.key = store_key::of_program(pid)?;
    // What was started by libckpt.so has only the log to say it in, if there is one.
    if directory.join("log").exists() {
        start_log(&directory, ckpt_wire::text(&control.log));
    }
    let store = Store::create_or_open_with(&directory, &store_options)
        .inspect_err(|error| log::error!("process {pid} can have no checkpoint: {error}"))?;
    start_log(&directory, ckpt_wire::text(&control.log));

    let address = Address::new(&directory, &program.identity_by(&control)?);
    let Some((tenure, listener)) = address.occupy(&program)? else {
        announce();
        return hand_over(&address, pid, options.first_trigger, &directory);
    };
    let mut usher = Usher::at(listener)?;
    announce();
    let interval = (control.interval_ms > 0).then(|| Duration::from_millis(control.interval_ms));
    let executable =
        std::env::current_exe().map_err(|source| Error::io("find the executable", "/proc/self/exe", source))?;
    let lineage = lineage_of(method, &tree)?.knowing(calls).copying_ahead(copies_bytes(&store_options));
    let lineage = lineage.acquainted(acquaintance(&directory, &control));
    let retention = Retention::new(control.keep);
    let memory = units::bytes(store_options.memory_bytes as u64);
    let mut agent = Agent {
        program,
        image: control.job,
        kinship: Kinship::with(control.mark, pid)?,
        founder: control.founder as i32,
        store,
        method,
        tree,
        lineage,
        interval,
        retention,
        executable,
        keeper_socket: address.keeper_socket(),
        failure: None,
        users: UsersWatch::default(),
        behind: Behind::default(),
    };
    log::info!("serving process {}, {memory} for buffers, method {}", agent.program.pid, method.name());
    if agent.store.is_encrypted() {
        log::info!("{} is encrypted; without one of its keys nobody can restart from it", directory.display());
    }
    if let Some(warning) = digest_warning(&agent.store, digest) {
        log::warn!("{warning}");
    }
    match options.first_trigger {
        // The interval begins with the program: the first checkpoint is due one interval from now.
        None | Some(Trigger::Interval) => {}
        Some(trigger) => agent.checkpoint(Depth::Full, &by(trigger), &mut |_, _| {}),
    }
    let outcome = agent.run(&mut usher);
    // The program may have another life already: its agent need not wait until we have taken ours apart.
    drop(tenure);
    agent.behind.finish();
    outcome
}

fn find(options: &AgentOptions, calls: &mut WaitingCalls) -> Result<(Program, Box<Control>)> {
    let pid = capture::root_of(options.pid);
    match options.is_starting {
        // There may be nobody to run the constructor of libckpt.so.
        true => capture::wait_until_ready(pid, calls, Instant::now() + LOADING_TIMEOUT, None),
        false => loaded_or_adopted(pid, calls),
    }
}

fn loaded_or_adopted(pid: i32, calls: &mut WaitingCalls) -> Result<(Program, Box<Control>)> {
    match find_loaded(pid) {
        Err(Error::NotPreloaded { .. }) => {
            let program = find_or_adopt(pid, calls, None)?;
            program.control().map(|control| (program, control))
        }
        found => found,
    }
}

/// The first process of what is left of the job that whoever has started us says we are the agent of.
fn left_of_job() -> Result<Option<i32>> {
    let mark = std::env::var(ENV_MARK).ok().and_then(|text| parse_mark(text.as_bytes()));
    match mark {
        Some((mark, _, founder)) if !ends_with_first() => {
            let job = Kinship { mark, since: 0, users: [geteuid().as_raw(); 4] };
            capture::first(&job, founder as i32, &mut Acquaintance::default())
        }
        _ => Ok(None),
    }
}

fn ends_with_first() -> bool {
    std::env::var_os(ENDS_WITH_FIRST).is_some()
}

fn lineage_of(method: Method, tree: &TreeOptions) -> Result<Lineage> {
    let mut lineage = Lineage::default();
    set_method(&mut lineage, method, tree)?;
    Ok(lineage)
}

fn set_method(lineage: &mut Lineage, method: Method, tree: &TreeOptions) -> Result<()> {
    lineage.store_finer((method == Method::Tree).then(|| tree.clone()))?;
    lineage.reuse(method.reuse());
    Ok(())
}

/// The log goes to the file that the program's environment named, or to `log` in the store.
fn start_log(directory: &Path, named: &[u8]) {
    let own = directory.join("log");
    let opened = match named {
        [] => logging::append_to(&own),
        named => logging::append_to(Path::new(OsStr::from_bytes(named))).or_else(|error| {
            logging::append_to(&own)?;
            log::warn!("{error}; the log is {}", own.display());
            Ok(())
        }),
    };
    if let Err(error) = opened {
        log::warn!("{error}");
    }
}

/// Tells whoever started us that we listen, and keeps no hold on his descriptors.
fn announce() {
    let mut stdout = std::io::stdout();
    // Started by libckpt.so there is nobody to tell.
    let _ = stdout.write_all(READY).and_then(|()| stdout.flush());
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdout(&null);
        let _ = nix::unistd::dup2_stderr(&null);
    }
}

fn hand_over(address: &Address, pid: i32, trigger: Option<Trigger>, directory: &Path) -> Result<()> {
    let Some(trigger) = trigger.filter(|&trigger| trigger != Trigger::Interval) else { return Ok(()) };
    let deadline = Instant::now() + CLIENT_TIMEOUT;
    // The other agent may hold the lock and not listen yet, for the time of a system call or two.
    let (stream, user) = loop {
        match address.connect(Trusted::by(pid)?)? {
            Some(found) => break found,
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
            None => {
                return Err(Error::environment(
                    "handing a request to the running agent",
                    "it does not answer",
                    "try again",
                ));
            }
        }
    };
    let request = CheckpointRequest::by(trigger);
    client::converse(&stream, Patience::with(user), &request, &mut |_| {}, directory).map(drop)
}

/// What earlier checkpoints say of the processes of the job, if that is asked for.
fn acquaintance(directory: &Path, control: &Control) -> Acquaintance {
    let (directory, job) = (directory.to_owned(), format!("{:016x}", control.job_id()));
    Acquaintance::with(control, move || match Store::open(&directory) {
        Ok(store) => recorded(&store, &job),
        Err(_) => Vec::new(),
    })
}

fn left_out_text(left_out: &LeftOut) -> String {
    let LeftOut { pid, user } = left_out;
    let name = printable(task::text(*pid, "comm").unwrap_or_default().trim_end());
    format!(
        "process {pid} ({name}) of user {user} has the mark of the job, but its parent has ended and its user is another one: it          cannot be told from a stranger, and is not in the checkpoint; take one while its parent lives"
    )
}

/// What a cause alone asks for.
fn by(trigger: Trigger) -> capture::Request {
    capture::Request { trigger: trigger.name().to_owned(), kill: false, with_dirs: Vec::new() }
}

impl Agent {
    fn run(&mut self, usher: &mut Usher) -> Result<()> {
        let mut due = self.interval.map(|interval| Instant::now() + interval);
        loop {
            if self.failure.is_some() && self.is_below_filters_of_the_program() {
                log::warn!(
                    "this agent is under a seccomp filter of the program, which has started it, and ends: `ckpt checkpoint` starts another"
                );
                return Ok(());
            }
            let timeout = due.map_or(PollTimeout::NONE, |due| {
                let left_ms = due.saturating_duration_since(Instant::now()).as_millis() + 1;
                PollTimeout::try_from(left_ms.min(i32::MAX as u128) as i32).unwrap_or(PollTimeout::MAX)
            });
            let mut events = [
                PollFd::new(self.program.pidfd.as_fd(), PollFlags::POLLIN),
                PollFd::new(usher.bell(), PollFlags::POLLIN),
            ];
            match poll(&mut events, timeout) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(source) => return Err(Error::io("wait for", "the program", source)),
            }
            let [ended, asked] = events.map(|event| event.any().unwrap_or(false));
            if ended && !self.follow_job() {
                return Ok(());
            }
            if asked && let Some(client) = usher.next() {
                self.answer(&client);
            }
            if let (Some(interval), Some(time)) = (self.interval, due)
                && Instant::now() >= time
            {
                self.checkpoint(Depth::Full, &by(Trigger::Interval), &mut |_, _| {});
                // Skipped rather than queued when a checkpoint takes longer than the interval.
                due = Some((time + interval).max(Instant::now()));
            }
        }
    }

    /// Whether filters judge us that the program has added, so that we can neither suspend nor read them.
    fn is_below_filters_of_the_program(&self) -> bool {
        let began = self.program.control().ok().and_then(|control| control.confinement());
        let filters = |confinement: Option<Confinement>| confinement.map_or(0, |confinement| confinement.filters);
        let of_program = confinement::of_thread(self.program.pid, self.program.pid).unwrap_or_default();
        filters(confinement::own()) > filters(began) && filters(of_program) > filters(began)
    }

    /// Serves one connection. A client that goes away or stops reading loses its replies, nothing else.
    fn answer(&mut self, client: &Client) {
        let request = match client.request() {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(error) => return log::warn!("{error}"),
        };
        if let Err(error) = self.change_method(request.method) {
            log::error!("{error}");
            // A client that is gone already has nobody to tell.
            client.tell(&Reply::Failed { message: error.to_string(), exit_code: error.exit_code() });
            return;
        }
        let mut listens = true;
        let mut last_progress = Instant::now();
        let Request { trigger, depth, kill, with_dirs, .. } = request;
        self.checkpoint(depth, &capture::Request { kill, with_dirs, ..by(trigger) }, &mut |reply, urgent| {
            if !urgent && last_progress.elapsed() < Duration::from_millis(50) {
                return;
            }
            last_progress = Instant::now();
            listens = listens && client.tell(reply);
        });
    }

    /// Stores memory in another way from now on, if that is asked for. What was known of it is of no use to the other
    /// way, except to the store, which has its pages.
    fn change_method(&mut self, wanted: Option<Method>) -> Result<()> {
        if let Some(method) = wanted.filter(|wanted| *wanted != self.method) {
            set_method(&mut self.lineage, method, &self.tree)?;
            self.method = method;
            log::info!("memory is stored by method {} from now on", method.name());
        }
        Ok(())
    }

    /// After the end of the job's first process, another one is: the oldest that descends from none of it. False if nobody is left.
    fn follow_job(&mut self) -> bool {
        let ended = self.program.pid;
        let mut outcome = Ok(None);
        let mut known = self.lineage.take_acquaintance();
        // Those may be many that end one after the other, each having left the job to the next.
        while self.kinship.mark != 0 && !ends_with_first() {
            outcome = match capture::first(&self.kinship, self.founder, &mut known) {
                Ok(Some(pid)) if pid != ended => match self.serve_from(pid) {
                    Err(Error::ProgramGone { .. }) => continue,
                    served => served.map(|()| Some(pid)),
                },
                Ok(_) => Ok(None),
                Err(error) => Err(error),
            };
            break;
        }
        known.take_left_out().iter().for_each(|left_out| log::warn!("{}", left_out_text(left_out)));
        self.lineage.acquaint(known);
        match &outcome {
            Ok(Some(pid)) => {
                log::info!("process {ended} has ended; serving what is left of its job, process {pid} first")
            }
            Ok(None) => log::info!("process {ended} has ended"),
            Err(error) => log::error!("process {ended} has ended, and nothing of its job can be served: {error}"),
        }
        matches!(outcome, Ok(Some(_)))
    }

    /// Process `pid` is the first one from now on.
    fn serve_from(&mut self, pid: i32) -> Result<()> {
        let mut calls = WaitingCalls::default();
        let (program, control) = capture::wait_until_ready(pid, &mut calls, Instant::now() + CLIENT_TIMEOUT, None)?;
        (self.program, self.image) = (program, control.job);
        // Nobody of the job has begun before the first one that it ever had.
        self.kinship.users = task::users(pid)?;
        self.lineage = lineage_of(self.method, &self.tree)?.knowing(calls);
        Ok(())
    }

    /// After an exec the process is another program, with its control block elsewhere and nothing tracked.
    fn follow_exec(&mut self) -> Result<()> {
        if self.program.control().is_ok_and(|control| control.job == self.image) {
            return Ok(());
        }
        let mut calls = WaitingCalls::default();
        let (program, control) = loaded_or_adopted(self.program.pid, &mut calls)?;
        (self.program, self.image) = (program, control.job);
        let known = self.lineage.take_acquaintance();
        self.lineage = lineage_of(self.method, &self.tree)?.knowing(calls).acquainted(known);
        Ok(())
    }

    /// Takes a checkpoint of the job as it is now.
    fn take(
        &mut self,
        depth: Depth,
        request: &capture::Request,
        events: &mut (dyn FnMut(Event) + Send),
    ) -> Result<AttemptRow> {
        self.follow_exec()?;
        let _first = EndedFirst::from_now();
        self.behind.tell(&mut self.lineage);
        let Agent { program, store, lineage, tree, keeper_socket, .. } = self;
        let take = match depth {
            Depth::Full => capture::checkpoint,
            Depth::Data => capture::data_checkpoint,
        };
        take(
            program,
            store,
            lineage,
            &Settings { tree, socket: keeper_socket, check: restore::check_before_seal },
            request,
            events,
        )
    }

    /// Takes a checkpoint and reports; `reply` gets each message and whether it must not be left out.
    fn checkpoint(&mut self, depth: Depth, request: &capture::Request, reply: &mut (dyn FnMut(&Reply, bool) + Send)) {
        let mut events = |event| match event {
            Event::Resumed { stop_ms, id } => reply(&Reply::Resumed { stop_ms, id }, true),
            Event::LeftOut(left_out) => {
                let message = left_out_text(&left_out);
                log::warn!("{message}");
                reply(&Reply::LeftOut { message }, true);
            }
            Event::Writing { done_bytes, total_bytes } => {
                reply(&Reply::Writing { done_bytes, total_bytes }, done_bytes == total_bytes);
            }
        };
        news::tell(&News::Begun);
        let mut outcome = self.take(depth, request, &mut events);
        // Its first process may end at any moment.
        while matches!(outcome, Err(Error::ProgramGone { .. })) && self.follow_job() {
            outcome = self.take(depth, request, &mut events);
        }
        match outcome {
            Ok(row) => {
                self.failure = None;
                log::info!(
                    "checkpoint {}{} sealed: {} bytes of memory, {} new, stopped {:.1} ms",
                    row.id,
                    if depth == Depth::Data { " of data" } else { "" },
                    row.memory_bytes,
                    row.new_bytes,
                    row.stop_ms
                );
                if depth == Depth::Full
                    && let Err(error) = write_restart_script(self.store.dir(), &self.executable)
                {
                    log::warn!("{error}");
                }
                self.retention.after(&row, &self.store);
                if let Some(warning) = self.users.warning(&self.store, self.program.pid) {
                    log::warn!("{warning}");
                }
                reply(&Reply::Sealed { id: row.id }, true);
                if let Some(unstored) = self.lineage.take_unstored() {
                    self.behind.store(&self.store, unstored);
                }
                news::tell(&News::Sealed { id: row.id });
            }
            Err(error) => {
                let why = error.to_string();
                let asks = [Trigger::Signal, Trigger::Interval].iter().any(|it| it.name() == request.trigger);
                news::tell(&match error {
                    Error::ProgramGone { .. } => News::Over,
                    _ if asks => News::Failed { message: why.clone() },
                    _ => News::Over,
                });
                let is_repeated = request.trigger == Trigger::Interval.name() && self.failure.as_ref() == Some(&why);
                // What fails at each interval fills no disk: the list of checkpoints has it each time.
                let level = if is_repeated { log::Level::Debug } else { log::Level::Error };
                log::log!(level, "checkpoint by {} failed: {why}", request.trigger);
                self.failure = Some(why.clone());
                reply(&Reply::Failed { message: why, exit_code: error.exit_code() }, true);
            }
        }
    }
}
