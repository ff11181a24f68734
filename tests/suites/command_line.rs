//! The command line as scripts see it: exit codes, stdout, JSON.

use std::time::Duration;

use ckpt_tests::exact::{assert_same, reference};
use ckpt_tests::{
    Answer, Ckpt, Launch, Life, Program, Restart, Scene, Stdout, Store, checkpoint, code_of, processes, product,
};

fn ckpt(scene: &Scene, arguments: &[&str]) -> Answer {
    Ckpt::new(scene, arguments).call()
}

fn program() -> Program {
    Program::victim("churn").argument("150")
}

/// A life with one checkpoint, dead.
fn checkpointed(scene: &Scene) -> (Store, i32, std::path::PathBuf, u64) {
    let mut life = Life::preloaded(scene, "life", &program());
    life.output.wait_for_lines(5);
    let id = checkpoint(scene, life.pid);
    life.kill();
    (life.store(), life.pid, life.directory.clone(), id)
}

#[test]
fn help_has_examples_and_goes_to_stdout() {
    let scene = Scene::new();
    for command in [
        "run",
        "checkpoint",
        "restart",
        "list",
        "show",
        "diff",
        "verify",
        "prune",
        "rm",
        "ps",
        "copy",
        "flatten",
        "doctor",
    ] {
        let answer = ckpt(&scene, &[command, "--help"]).succeeded();
        assert!(answer.stdout.contains("xample"), "ckpt {command} --help shows no example:\n{}", answer.stdout);
        assert_eq!(answer.stderr, "");
    }
}

#[test]
fn a_wrong_command_line_is_usage() {
    let scene = Scene::new();
    for arguments in
        [&["no-such-command"][..], &["checkpoint", "not-a-pid"], &["rm"], &["rm", "x"], &["diff", "1"], &[]]
    {
        let answer = ckpt(&scene, arguments).failed_with(2);
        assert_eq!(answer.stdout, "", "{arguments:?}");
        assert_ne!(answer.stderr, "", "{arguments:?}");
    }
    ckpt(&scene, &["run", "--no-such-option", "--", "true"]).failed_with(122);
    ckpt(&scene, &["restart", "--no-such-option"]).failed_with(122);
}

#[test]
fn without_a_store_commands_mean_that_of_run() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &program());
    life.output.wait_for_lines(5);
    let store = life.store().path().display().to_string();
    let in_variable = |arguments: &[&str]| Ckpt::new(&scene, arguments).variable("CKPT_DIR", &store).call();
    let first = in_variable(&["checkpoint"]).succeeded().number();
    let second = in_variable(&["checkpoint"]).succeeded().number();
    let rows = in_variable(&["list", "--json"]).succeeded().stdout;
    assert_eq!(rows, ckpt(&scene, &["list", &store, "--json"]).succeeded().stdout);
    in_variable(&["show"]).succeeded();
    in_variable(&["diff", &first.to_string(), &second.to_string()]).succeeded();
    in_variable(&["flatten", &second.to_string()]).succeeded();
    let verified = in_variable(&["verify", &first.to_string(), "--json"]).succeeded().json();
    assert_eq!(verified.as_array().map(Vec::len), Some(1), "{verified}");
    in_variable(&["prune", "--keep", "2"]).succeeded();
    let nowhere = ckpt(&scene, &["verify", &first.to_string()]);
    assert!(nowhere.code == 1 && nowhere.stderr.contains("ckpt-store"), "{nowhere:?}");
    life.kill();
}

#[test]
fn rm_drops_what_it_is_told_to_and_nothing_where_one_is_not_there() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &program());
    life.output.wait_for_lines(3);
    let ids: Vec<u64> = (0..3).map(|_| checkpoint(&scene, life.pid)).collect();
    let store = life.store();
    let dir = store.path().display().to_string();
    let [first, second, third] = [ids[0], ids[1], ids[2]].map(|id| id.to_string());
    ckpt(&scene, &["rm", &dir, &first, "99"]).failed_with(1);
    assert_eq!(store.sealed(&scene).len(), 3);
    let removed = ckpt(&scene, &["rm", &dir, &first, &third, "--json"]).succeeded().json();
    assert_eq!(removed["checkpoints"], serde_json::json!([ids[0], ids[2]]));
    let left: Vec<u64> = store.sealed(&scene).iter().map(|row| row.id).collect();
    assert_eq!(left, [ids[1]]);
    ckpt(&scene, &["verify", &dir, &second]).succeeded();
    life.kill();
    let mut again = Restart::of(&store).begin(&scene, &life.directory.clone(), life.pid);
    again.output.wait_for_more_lines(2);
    again.kill();
}

#[test]
fn ps_lists_each_job_once_with_how_far_it_is() {
    let scene = Scene::new();
    let launch = Launch::Run(["--interval", "1h", "--name", "listed"].map(str::to_owned).into());
    let mut life = Life::start(&scene, "life", &Program::victim("family").argument("1000"), &launch, Stdout::File);
    life.output.wait_for_lines(5);
    let store = life.store();
    let entry = || {
        let listed = ckpt(&scene, &["ps", "--json"]).succeeded().json();
        let all = listed.as_array().expect("a list").clone();
        let ours: Vec<_> = all.into_iter().filter(|it| it["store"] == store.path().display().to_string()).collect();
        assert_eq!(ours.len(), 1, "{ours:?}");
        ours[0].clone()
    };
    let before = entry();
    assert_eq!((&before["pid"], &before["name"]), (&life.pid.into(), &"listed".into()));
    assert_eq!((&before["interval_ms"], &before["newest"]), (&3_600_000.into(), &serde_json::Value::Null));
    assert!(before["agent"].is_i64(), "{before}");
    let id = checkpoint(&scene, life.pid);
    assert_eq!(entry()["newest"], id);
    let table = ckpt(&scene, &["ps"]).succeeded().stdout;
    assert!(table.lines().any(|line| line.contains("listed") && line.contains("3600 s")), "{table}");
    life.kill();
    let mut again = Restart::of(&store).begin(&scene, &life.directory.clone(), life.pid);
    again.output.wait_for_more_lines(2);
    let id = checkpoint(&scene, life.pid);
    let of_second_life = entry();
    assert_eq!((&of_second_life["pid"], &of_second_life["newest"]), (&life.pid.into(), &id.into()));
    assert_eq!(of_second_life["agent"], processes::agents_of(life.pid)[0], "{of_second_life}");
    again.kill();
}

#[test]
fn checkpoint_prints_the_id_alone() {
    let scene = Scene::new();
    let life = Life::preloaded(&scene, "life", &program());
    life.output.wait_for_lines(5);
    let answer = ckpt(&scene, &["checkpoint", &life.pid.to_string()]).succeeded();
    let id = answer.number();
    let rows = life.store().rows(&scene);
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [id]);
}

#[test]
fn list_and_show_have_the_documented_fields() {
    let scene = Scene::new();
    let (store, pid, _, id) = checkpointed(&scene);
    let row = &store.rows(&scene)[0];
    assert_eq!((row.id, row.name.as_str(), row.state.as_str(), row.processes), (id, "churn", "sealed", 1));
    assert!(!row.job.is_empty() && row.sealed_unix_s.is_some_and(|time| time > 1_700_000_000), "{row:?}");
    assert!(row.memory_bytes > 0 && row.new_bytes > 0, "{row:?}");
    assert!(row.stop_ms <= row.total_ms, "{row:?}");

    let shown = store.show(&scene, id);
    let regions = shown["regions"].as_array().expect("regions[]");
    assert!(regions.len() > 10);
    for region in regions {
        for field in ["id", "address", "bytes", "kind", "name"] {
            assert!(region.get(field).is_some(), "no {field} in {region}");
        }
    }
    assert!(regions.iter().any(|region| region["name"] == "[stack]"), "{shown}");
    assert!(regions.iter().all(|region| region["name"] != "[vdso]"), "vdso is not captured");
    let threads = shown["threads"].as_array().expect("threads[]");
    assert!(threads.len() >= 4, "{shown}");
    assert!(shown.to_string().contains(&pid.to_string()));
    for word in ["processes", "descriptors"] {
        assert!(shown.get(word).is_some(), "no {word} in {shown}");
    }
}

#[test]
fn list_and_show_are_readable_without_json() {
    let scene = Scene::new();
    let (store, _, _, id) = checkpointed(&scene);
    let dir = store.path().to_string_lossy().into_owned();
    let list = ckpt(&scene, &["list", &dir]).succeeded();
    assert!(list.stdout.contains("sealed") && list.stdout.contains("churn"), "{}", list.stdout);
    let newest = ckpt(&scene, &["show", &dir]).succeeded();
    let numbered = ckpt(&scene, &["show", &dir, &id.to_string()]).succeeded();
    assert_eq!(newest.stdout, numbered.stdout);
    for word in ["zero", "duplicate", "new", "[stack]"] {
        assert!(newest.stdout.contains(word), "no {word} in:\n{}", newest.stdout);
    }
}

#[test]
fn list_says_what_a_store_grows_by() {
    let scene = Scene::new();
    let launch = Launch::Run(["--interval", "100ms", "--name", "grows"].map(str::to_owned).into());
    let mut life = Life::start(&scene, "life", &program(), &launch, Stdout::File);
    let limit = Duration::from_secs(30);
    processes::wait_until("five checkpoints", limit, || {
        life.directory.join("store").exists() && life.store().sealed(&scene).len() >= 5
    });
    let dir = life.store().path().to_string_lossy().into_owned();
    let list = ckpt(&scene, &["list", &dir]).succeeded();
    let told = format!("{:?}", list.stderr);
    assert!(told.contains("grows stores ") && told.contains("an hour while all are kept, and the disk has"), "{told}");
    assert!(told.contains("CKPT_KEEP=N") && !list.stdout.contains("CKPT_KEEP"), "{told}");
    assert_eq!(ckpt(&scene, &["list", &dir, "--json"]).succeeded().stderr, "");
    life.kill();
}

#[test]
fn a_process_that_does_not_exist_fails() {
    let scene = Scene::new();
    let answer = ckpt(&scene, &["checkpoint", "4194303"]);
    assert!(matches!(answer.code, 1 | 5), "{answer:?}");
    assert!(answer.stderr.contains("4194303"), "{answer:?}");
}

#[test]
fn an_unknown_id_and_a_directory_that_is_no_store_fail() {
    let scene = Scene::new();
    let (store, _, _, _) = checkpointed(&scene);
    let dir = store.path().to_string_lossy().into_owned();
    let empty = scene.folder("empty").to_string_lossy().into_owned();
    for arguments in [&["show", &dir, "999"][..], &["list", &empty], &["show", &empty], &["list", "/no/such/place"]] {
        let answer = ckpt(&scene, arguments);
        assert!(matches!(answer.code, 1..=5), "{arguments:?}: {answer:?}");
        assert_eq!(answer.stdout, "", "{arguments:?}");
    }
    for arguments in [&["restart", &dir, "--id", "999"][..], &["restart", &empty], &["restart", "/no/such/place"]] {
        let answer = ckpt(&scene, arguments);
        assert!(matches!(answer.code, 121..=125), "{arguments:?}: {answer:?}");
        assert_eq!(answer.stdout, "", "{arguments:?}");
    }
    assert_eq!(std::fs::read_dir(&empty).expect("it is there").count(), 0, "reading a store makes none");
}

#[test]
fn no_wait_returns_when_the_program_runs_again() {
    let scene = Scene::new();
    let program = Program::victim("idle").argument("2000").argument("random");
    let life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(3);
    let id = ckpt(&scene, &["checkpoint", "--no-wait", &life.pid.to_string()]).succeeded().number();
    let row = life.store().wait_for_sealed(&scene, 1);
    assert_eq!(row.id, id);
    life.output.wait_for_more_lines(2);
}

#[test]
fn kill_seals_and_ends_the_program_without_letting_it_run_on() {
    let scene = Scene::new();
    let reference = reference(&scene, &program());
    let mut life = Life::start(&scene, "life", &program(), &Launch::Preload, Stdout::Pipe);
    life.output.wait_for_lines(5);
    ckpt(&scene, &["checkpoint", "--kill", &life.pid.to_string()]).succeeded().number();
    assert_eq!(code_of(life.wait()), 137);
    life.output.wait_for_the_end(Duration::from_secs(2));
    let first = life.output.bytes();
    let restart = Restart::of(life.store()).stdout(Stdout::Pipe);
    let mut second = restart.begin(&scene, &life.directory, life.pid);
    assert_eq!(code_of(second.wait()), reference.code, "{}", second.errors());
    second.output.wait_for_the_end(Duration::from_secs(2));
    let both = [first, second.output.bytes()].concat();
    assert_same(&both, &reference.stdout, "the two lives together: no byte twice, none missing");
}

#[test]
fn detach_prints_the_pid_alone_and_returns() {
    let scene = Scene::new();
    let reference = reference(&scene, &program());
    let (store, pid, directory, _) = checkpointed(&scene);
    let answer = ckpt(&scene, &["restart", "--detach", &store.path().to_string_lossy()]).succeeded();
    let found = i32::try_from(answer.number()).expect("a pid");
    assert!(processes::is_alive(found), "{answer:?}");
    assert_eq!(processes::pid_in_its_namespace(found), Some(pid));
    let output = ckpt_tests::output::Output::File(directory.join("stdout"));
    output.wait_for_line("verified");
    assert_same(&output.bytes(), &reference.stdout, "the output of the detached program");
}

#[test]
fn a_detached_program_can_be_checkpointed_again() {
    let scene = Scene::new();
    let reference = reference(&scene, &program());
    let (store, pid, directory, first) = checkpointed(&scene);
    let detached = ckpt(&scene, &["restart", "--detach", &store.path().to_string_lossy()]).succeeded();
    let found = i32::try_from(detached.number()).expect("a pid");
    let id = ckpt(&scene, &["checkpoint", "--kill", &found.to_string()]).succeeded().number();
    assert!(id > first);
    processes::wait_until("it is gone", Duration::from_secs(5), || !processes::is_alive(found));
    let mut life = Restart::of(&store).begin(&scene, &directory, pid);
    assert_eq!(code_of(life.wait()), reference.code, "{}", life.errors());
    assert_same(&life.output.bytes(), &reference.stdout, "the output of the third life");
}

#[test]
fn run_passes_the_exit_status_through() {
    let scene = Scene::new();
    for (kind, code) in [("code:0", 0), ("code:1", 1), ("code:42", 42), ("signal:15", 143), ("signal:9", 137)] {
        let program = Program::victim("exits").argument("3").argument(kind);
        let run = Launch::Run(Vec::new());
        let mut command = std::process::Command::new(ckpt_tests::product::ckpt());
        let Launch::Run(options) = run else { unreachable!() };
        command.arg("run").args(options).arg("--dir").arg(scene.path().join("store"));
        command.arg("--").arg(&program.executable).args(&program.arguments).current_dir(scene.path());
        let status = command.output().expect("ckpt runs").status;
        assert_eq!(code_of(status), code, "{kind}");
    }
}

#[test]
fn run_of_a_missing_program_fails_with_a_code_of_ours() {
    let scene = Scene::new();
    let answer = ckpt(&scene, &["run", "--", "/no/such/program"]);
    assert!(matches!(answer.code, 121..=125), "{answer:?}");
    assert!(answer.stderr.contains("/no/such/program"), "{answer:?}");
}

#[test]
fn run_sets_directory_name_and_interval() {
    let scene = Scene::new();
    let dir = scene.path().join("other store");
    let program = Program::victim("churn").argument("1000");
    let options = ["--dir", &dir.to_string_lossy(), "--name", "a name", "--interval", "1s"].map(str::to_owned);
    let life = Life::start(&scene, "life", &program, &Launch::Run(options.into()), Stdout::File);
    let row = Store::at(&dir).wait_for_sealed(&scene, 1);
    assert_eq!(row.name, "a name");
    assert!(!life.store().path().exists(), "--dir wins over CKPT_DIR");
}

#[test]
fn run_makes_a_store_of_the_digest_and_says_when_one_keeps_another() {
    let scene = Scene::new();
    let program = Program::victim("churn").argument("1000");
    let life = |options: [&str; 2], program: &Program| {
        let launch = Launch::Run(options.map(str::to_owned).into());
        let mut life = Life::start(&scene, "life", program, &launch, Stdout::File);
        life.output.wait_for_lines(5);
        let id = checkpoint(&scene, life.pid);
        let digest = life.store().show(&scene, id)["digest"].clone();
        life.kill();
        (digest, life.errors(), std::fs::read_to_string(life.store().path().join("log")).expect("the log"))
    };
    let (digest, said, log) = life(["--digest", "blake3"], &program);
    assert_eq!((digest, said.as_str(), log.contains("WARN")), ("blake3".into(), "", false), "{log}");
    let (digest, said, log) = life(["--digest", "sha1"], &program);
    assert_eq!(digest, "blake3", "a store keeps its digest");
    for told in [&said, &log] {
        assert!(told.contains("was made with digest blake3 and keeps it; for sha1"), "{said}\n{log}");
    }
    let (_, said, _) = life(["--name", "n"], &program.variable("CKPT_DIGEST", "sha1"));
    assert!(said.contains("keeps it; for sha1"), "the variable is a wish like the option: {said}");
    let wrong = ckpt(&scene, &["run", "--digest", "md5", "--", "true"]).failed_with(122);
    assert!(wrong.stderr.contains("sha1 or blake3"), "{wrong:?}");
}

#[test]
fn the_interval_is_taken_from_the_environment_too() {
    let scene = Scene::new();
    let program = Program::victim("churn").argument("1000").variable("CKPT_INTERVAL", "1");
    let life = Life::start(&scene, "life", &program, &Launch::Run(Vec::new()), Stdout::File);
    life.store().wait_for_sealed(&scene, 2);
}

/// At once they have little time each, and so the one comes at any moment of the start of the other.
#[test]
fn shells_that_execute_the_program_have_automatic_checkpoints_wherever_their_agent_is_then() {
    let scene = Scene::new();
    let mut lives: Vec<_> = (0..24)
        .map(|number| {
            let text = format!("i=0; while [ $i -lt {} ]; do i=$((i + 1)); done; exec sleep 5", number * 200);
            let run = Program::at(product::ckpt()).argument("run").argument("--dir=store").argument("--interval=1");
            let program = run.argument("sh").argument("-c").argument(text);
            Life::start(&scene, &format!("life-{number}"), &program, &Launch::Plain, Stdout::File)
        })
        .collect();
    for life in &mut lives {
        assert_eq!(code_of(life.wait()), 0, "{}", life.errors());
        assert!(!life.store().sealed(&scene).is_empty(), "no checkpoint in {}", life.directory.display());
    }
}

#[test]
fn automatic_checkpoints_go_on_after_a_restart_at_the_same_or_another_interval() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let program = Program::victim("churn").argument("6000");
    let mut life = Life::start(&scene, "life", &program, &Launch::Run(vec!["--interval=1s".to_owned()]), Stdout::File);
    let store = life.store();
    store.wait_for_sealed(&scene, 1);
    life.kill();
    let sealed = || store.sealed(&scene).len();

    let before = sealed();
    let mut second = Restart::of(&store).begin(&scene, &life.directory, life.pid);
    store.wait_for_sealed(&scene, before + 2);
    second.kill();

    let mut third = Restart::of(&store).option("--interval").option("0").begin(&scene, &life.directory, life.pid);
    let before = sealed();
    third.output.wait_for_more_lines(200);
    assert_eq!((sealed(), processes::agents_of(third.pid)), (before, Vec::new()), "nobody is there to take one");
    // What was changed is in the next checkpoint.
    checkpoint(&scene, third.pid);
    third.kill();

    let dir = store.path().to_string_lossy().into_owned();
    let before = sealed();
    let detached = ckpt(&scene, &["restart", &dir, "--detach", "--interval", "1s"]).succeeded();
    let pid = i32::try_from(detached.number()).expect("a pid");
    store.wait_for_sealed(&scene, before + 2);
    processes::send(pid, nix::sys::signal::Signal::SIGKILL);
}

#[test]
fn the_pid_file_is_there_before_the_program_runs_and_never_if_it_does_not_run() {
    let scene = Scene::new();
    let file = scene.path().join("pid");
    let run = |program: &[&str]| ckpt(&scene, &[&["run", "--pid-file", "pid", "--"], program].concat());
    let answer = run(&["/bin/sh", "-c", "echo $$; cat pid pid.id"]).succeeded();
    let lines: Vec<&str> = answer.stdout.lines().collect();
    assert!(lines[0] == lines[1] && lines[0] == lines[2], "{answer:?}");
    assert_eq!(lines.len(), 4, "{answer:?}");
    std::fs::remove_file(scene.path().join("pid.id")).expect("it is there");

    let bad = scene.path().join("bad");
    std::fs::write(&bad, "#!/no/such/interpreter\n").expect("a file");
    std::fs::set_permissions(&bad, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    for program in ["/no/such/program", "./bad"] {
        std::fs::write(&file, "1\n").expect("a file of an earlier life");
        let answer = run(&[program]);
        assert!(matches!(answer.code, 121..=125), "{answer:?}");
        assert!(!file.exists(), "{program}: {answer:?}");
    }
    let answer = ckpt(&scene, &["run", "--pid-file", "no/such/folder/pid", "--", "/bin/true"]).failed_with(121);
    assert!(answer.stderr.contains("no/such/folder/pid"), "{answer:?}");
    let names = std::fs::read_dir(scene.path()).expect("the scene").filter_map(Result::ok);
    let left: Vec<_> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(!left.iter().any(|name| name.starts_with("pid")), "{left:?}");
}

#[test]
fn a_restart_writes_the_pid_file_when_the_program_is_complete() {
    let scene = Scene::new();
    let (store, pid, directory, _) = checkpointed(&scene);
    let file = scene.path().join("pid");
    let restart = Restart::of(&store).option("--pid-file").option(&file.to_string_lossy());
    let mut second = restart.begin(&scene, &directory, pid);
    let text = std::fs::read_to_string(&file).expect("it runs");
    assert_eq!(text, format!("{}\n", second.pid));
    second.kill();
    assert!(file.exists(), "who comes later learns that the exit status was the program's");

    damage_every_file(store.path());
    ckpt(&scene, &["restart", &store.path().to_string_lossy(), "--pid-file", "pid"]).failed_with(123);
    assert!(!file.exists());
}

#[test]
fn the_memory_for_buffers_is_taken_from_the_option_and_from_the_environment() {
    for (options, variable, said) in [(&["--memory", "64M"][..], "1G", "64.0 MiB"), (&[], "32M", "32.0 MiB")] {
        let scene = Scene::new();
        let program = Program::victim("churn").argument("1000").variable("CKPT_MEMORY", variable);
        let options = ["--interval", "1s"].iter().chain(options).map(|&option| option.to_owned()).collect();
        let life = Life::start(&scene, "life", &program, &Launch::Run(options), Stdout::File);
        life.store().wait_for_sealed(&scene, 1);
        let log = std::fs::read_to_string(life.store().path().join("log")).expect("the agent's log");
        assert!(log.contains(&format!("{said} for buffers")), "{log}");
    }
}

#[test]
fn the_store_is_private_and_has_a_restart_script_that_works() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    let reference = reference(&scene, &program());
    let (store, _, directory, _) = checkpointed(&scene);
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!(mode(store.path()), 0o700);
    let script = store.path().join("restart.sh");
    assert_eq!(mode(&script) & 0o077, 0, "nobody else reads or runs it");
    let shell = Program::at("/bin/sh").argument(&script);
    let mut life = Life::start(&scene, "by-script", &shell, &Launch::Plain, Stdout::File);
    assert_eq!(code_of(life.wait()), reference.code, "{}", life.errors());
    let output = std::fs::read(directory.join("stdout")).expect("the program's output");
    assert_same(&output, &reference.stdout, "the output after restart.sh");
}

/// A store with a checkpoint of each of two programs, which are dead; their jobs, in the order of the checkpoints.
fn store_of_two_jobs(scene: &Scene) -> (String, [String; 2]) {
    let shared = scene.path().join("shared");
    let program = program().variable("CKPT_DIR", &shared);
    for name in ["one", "other"] {
        Life::until_checkpoint(scene, name, &program, 5);
    }
    let jobs: Vec<String> = Store::at(&shared).rows(scene).into_iter().map(|row| row.job).collect();
    assert_ne!(jobs[0], jobs[1]);
    (shared.to_string_lossy().into_owned(), jobs.try_into().expect("two checkpoints"))
}

#[test]
fn a_store_of_two_jobs_makes_restart_and_show_ask_which() {
    let scene = Scene::new();
    let (dir, jobs) = store_of_two_jobs(&scene);
    for (command, usage) in [("restart", 122), ("show", 2)] {
        let answer = ckpt(&scene, &[command, &dir]).failed_with(usage);
        assert!(jobs.iter().all(|job| answer.stderr.contains(job.as_str())), "it lists the jobs: {answer:?}");
        assert_eq!(answer.stdout, "");
        ckpt(&scene, &[command, &dir, "--job", "no such job"]).failed_with(usage);
    }
    let shown = |arguments: &[&str]| {
        let answer = ckpt(&scene, &[&["show", &dir, "--json"], arguments].concat()).succeeded();
        serde_json::from_str::<serde_json::Value>(&answer.stdout).expect("JSON")
    };
    assert_eq!(shown(&["1"])["job"], *jobs[0], "a number needs no job");
    assert_eq!(shown(&["--job", &jobs[0]])["id"], 1);
    ckpt(&scene, &["show", &dir, "1", "--job", &jobs[1]]).failed_with(2);
    ckpt(&scene, &["restart", &dir, "--job", &jobs[1]]).failed_with(7);
}

#[test]
fn list_and_verify_pick_the_rows_of_a_job() {
    let scene = Scene::new();
    let (dir, jobs) = store_of_two_jobs(&scene);
    let ids = |arguments: &[&str]| -> Vec<u64> {
        let answer = ckpt(&scene, &[arguments, &["--json"]].concat()).succeeded();
        let rows: Vec<serde_json::Value> = serde_json::from_str(&answer.stdout).expect("an array");
        rows.iter().map(|row| row["id"].as_u64().expect("an id")).collect()
    };
    for command in ["list", "verify"] {
        assert_eq!(ids(&[command, &dir]), [1, 2], "several jobs are no guess here");
        assert_eq!(ids(&[command, &dir, "--job", &jobs[1]]), [2]);
        assert_eq!(ids(&[command, &dir, "--job", "churn"]), [1, 2], "both bear this name");
        let unknown = ckpt(&scene, &[command, &dir, "--job", "no such job"]).failed_with(2);
        assert!(jobs.iter().all(|job| unknown.stderr.contains(job.as_str())), "it lists the jobs: {unknown:?}");
    }
    ckpt(&scene, &["verify", &dir, "1", "--job", &jobs[1]]).failed_with(2);
}

#[test]
fn diff_names_the_regions_that_changed_and_counts_their_pages() {
    let scene = Scene::new();
    let program = Program::victim("patches").argument("3");
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("step 1");
    let a = checkpoint(&scene, life.pid).to_string();
    processes::send(life.pid, nix::sys::signal::Signal::SIGUSR2);
    life.output.wait_for_line("step 2");
    let b = checkpoint(&scene, life.pid).to_string();
    life.kill();

    let dir = life.store().path().to_string_lossy().into_owned();
    let diff = |arguments: &[&str]| -> serde_json::Value {
        let answer = ckpt(&scene, &[&["diff", &dir], arguments, &["--json"]].concat()).succeeded();
        serde_json::from_str(&answer.stdout).expect("JSON")
    };
    // State, bytes in A and in B in pages, pages changed, added and gone of the region at a place of the victim's.
    let at = |diff: &serde_json::Value, place: u64| {
        let address = format!("{:#x}", 0x5100_0000_0000 + place * 1024 * 4096);
        let region = diff["regions"].as_array().expect("regions[]").iter().find(|region| region["address"] == *address);
        region.map(|region| {
            let pages = |name: &str| region[name].as_u64().map_or(0, |bytes| bytes / 4096);
            let count = |name: &str| region[name].as_u64().expect("a number");
            let state = region["state"].as_str().expect("a state").to_owned();
            let counts = [count("pages_changed"), count("pages_added"), count("pages_gone")];
            (state, [pages("bytes_a"), pages("bytes_b")], counts)
        })
    };
    let is = |state: &str, pages, counts| Some((state.to_owned(), pages, counts));
    let forth = diff(&[&a, &b]);
    assert_eq!(at(&forth, 0), is("changed", [64, 64], [2, 1, 1]));
    assert_eq!(at(&forth, 1), None, "a region that did not change");
    assert_eq!(at(&forth, 2), is("resized", [64, 128], [0, 2, 0]));
    assert_eq!(at(&forth, 3), is("only_in_a", [64, 0], [0, 0, 64]));
    assert_eq!(at(&forth, 4), is("only_in_b", [0, 64], [0, 3, 0]));
    assert_eq!(forth["same_job"], true);
    assert_eq!(at(&diff(&[&a, &b, "--all"]), 1), is("same", [64, 64], [0, 0, 0]));
    assert_eq!(at(&diff(&[&b, &a]), 0), is("changed", [64, 64], [2, 1, 1]), "added and gone have changed places");
    assert_eq!(at(&diff(&[&b, &a]), 4), is("only_in_a", [64, 0], [0, 0, 3]));

    let nothing = diff(&[&a, &a]);
    assert_eq!((&nothing["regions"], &nothing["totals"]["pages_changed"]), (&serde_json::json!([]), &0.into()));
    let people = ckpt(&scene, &["diff", &dir, &a, &b]).succeeded();
    assert!(people.stdout.contains("0x510000000000") && people.stdout.contains("only in B"), "{people:?}");
    for command in [&["diff", &dir, &a, "99"][..], &["show", &dir, "99"]] {
        let missing = ckpt(&scene, command).failed_with(1);
        assert!(missing.stderr.contains("no checkpoint 99"), "{missing:?}");
    }
}

#[test]
fn diff_of_two_jobs_says_so_and_one_of_a_failed_attempt_is_refused() {
    let scene = Scene::new();
    let (dir, _) = store_of_two_jobs(&scene);
    let people = ckpt(&scene, &["diff", &dir, "1", "2"]).succeeded();
    assert!(people.stdout.contains("different jobs") && people.stdout.contains("Threads only in A"), "{people:?}");
    let json = ckpt(&scene, &["diff", &dir, "1", "2", "--json"]).succeeded();
    assert!(json.stdout.contains("\"same_job\": false"), "{json:?}");

    let refused = Program::victim("refused").argument("100").argument("packet_ring").variable("CKPT_DIR", &dir);
    let mut life = Life::preloaded(&scene, "refused", &refused);
    life.output.wait_for_line("ready");
    ckpt(&scene, &["checkpoint", &life.pid.to_string()]).failed_with(4);
    life.kill();
    for command in [&["diff", &dir, "1", "3"][..], &["show", &dir, "3"]] {
        let answer = ckpt(&scene, command).failed_with(1);
        assert!(answer.stderr.contains("not a checkpoint") && answer.stderr.contains("socket"), "{answer:?}");
    }
}

#[test]
fn doctor_tells_what_works_here() {
    let scene = Scene::new();
    let answer = ckpt(&scene, &["doctor"]);
    for word in [
        "ptrace",
        "user namespace",
        "time namespace",
        "set_tid",
        "userfaultfd",
        "write tracking",
        "huge page",
        "file system",
    ] {
        let text = format!("{}{}", answer.stdout, answer.stderr).to_lowercase();
        assert!(text.contains(word), "ckpt doctor says nothing about {word}:\n{text}");
    }
    assert!(matches!(answer.code, 0 | 5), "{answer:?}");
}

#[test]
fn a_damaged_checkpoint_is_corrupt() {
    let scene = Scene::new();
    let (store, _, _, _) = checkpointed(&scene);
    let damaged = damage_every_file(store.path());
    assert!(damaged > 0);
    let answer = ckpt(&scene, &["restart", &store.path().to_string_lossy()]);
    assert_eq!(answer.code, 123, "{answer:?}");
    assert_eq!(answer.stdout, "");
}

#[test]
fn a_damaged_manifest_is_corrupt_to_every_command() {
    let scene = Scene::new();
    let (store, _, directory, id) = checkpointed(&scene);
    let manifest = store.path().join(format!("manifests/{id:010}.manifest"));
    let whole = std::fs::read(&manifest).expect("the manifest");
    let (dir, id) = (store.path().to_string_lossy().into_owned(), id.to_string());
    let copy = directory.join("copy").to_string_lossy().into_owned();
    let numbered = format!("{dir}:{id}");
    let cut = whole[..100].to_vec();
    let changed = whole.iter().enumerate().map(|(at, &byte)| if at == 40 { !byte } else { byte }).collect();
    for (how, bytes) in [("changed", changed), ("cut off", cut), ("empty", Vec::new())] {
        std::fs::write(&manifest, bytes).expect("writable");
        let commands: [(&[&str], i32); 9] = [
            (&["restart", &dir], 123),
            (&["restart", &dir, "--id", &id], 123),
            (&["restart", &dir, "--id", &id, "--job", "churn"], 123),
            (&["show", &dir, &id], 3),
            (&["extract", &dir, &id, "--region", "1", "-o", "/dev/null"], 3),
            (&["diff", &dir, &id, &id], 3),
            (&["flatten", &dir, &id], 3),
            (&["copy", &numbered, &copy], 3),
            (&["verify", &dir, &id], 3),
        ];
        for (command, code) in commands {
            let answer = ckpt(&scene, command);
            let said = format!("{}{}", answer.stdout, answer.stderr);
            assert_eq!(answer.code, code, "{how}: {command:?}: {said}");
            assert!(said.contains(&*manifest.to_string_lossy()), "{how}: {command:?}: {said}");
        }
    }
}

#[test]
fn verify_tells_whole_checkpoints_from_damaged_ones() {
    let scene = Scene::new();
    let (store, _, directory, id) = checkpointed(&scene);
    let dir = store.path().to_string_lossy().into_owned();
    let verdicts = |answer: &str| serde_json::from_str::<serde_json::Value>(answer).expect("JSON");

    let answer = ckpt(&scene, &["verify", &dir]).succeeded();
    assert!(answer.stdout.contains("whole"), "{answer:?}");
    assert_eq!(answer.stderr, "");
    let whole = verdicts(&ckpt(&scene, &["verify", &dir, &id.to_string(), "--json"]).succeeded().stdout);
    assert_eq!(whole.as_array().map(Vec::len), Some(1));
    assert_eq!((&whole[0]["id"], &whole[0]["state"]), (&id.into(), &"whole".into()));

    let missing = ckpt(&scene, &["verify", &dir, "99"]).failed_with(1);
    assert!(missing.stderr.contains("99"), "{missing:?}");

    let copy = directory.join("damaged");
    let copied = std::process::Command::new("cp").arg("-a").arg(store.path()).arg(&copy).status().expect("cp");
    assert!(copied.success());
    assert!(damage_every_file(&copy) > 0);
    let answer = ckpt(&scene, &["verify", &copy.to_string_lossy(), "--json"]).failed_with(3);
    let damaged = verdicts(&answer.stdout);
    assert_eq!((&damaged[0]["id"], &damaged[0]["state"]), (&id.into(), &"damaged".into()));
    let reason = damaged[0]["reason"].as_str().expect("a reason");
    assert!(reason.contains(&*copy.to_string_lossy()), "the place is missing: {reason}");
    assert_eq!(answer.stderr.trim_end().lines().count(), 1, "{answer:?}");
    // The store it was copied from is another one.
    ckpt(&scene, &["verify", &dir]).succeeded();
}

/// Changes a byte in the middle of each file larger than a page; gives how many.
fn damage_every_file(folder: &std::path::Path) -> usize {
    let mut damaged = 0;
    for entry in std::fs::read_dir(folder).expect("the store").filter_map(Result::ok) {
        let kind = entry.file_type().expect("it exists");
        if kind.is_dir() {
            damaged += damage_every_file(&entry.path());
        } else if kind.is_file() {
            let mut bytes = std::fs::read(entry.path()).expect("readable");
            if bytes.len() > 4096 {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0x10;
                std::fs::write(entry.path(), bytes).expect("writable");
                damaged += 1;
            }
        }
    }
    damaged
}

#[test]
fn a_store_of_another_user_is_restarted_only_when_its_owner_is_trusted() {
    let scene = Scene::new();
    let (_, _, directory, _) = checkpointed(&scene);
    let store = directory.join("store");
    // Another owner of the directory and its files is all that root sees of another user's store.
    let chown = std::process::Command::new("chown").args(["-R", "65534:65534"]).arg(&store).status().unwrap();
    assert!(chown.success());
    let dir = store.to_string_lossy().into_owned();
    let answer = ckpt(&scene, &["restart", &dir]).failed_with(125);
    assert!(answer.stderr.contains("--trust-owner") && answer.stderr.contains("65534"), "{answer:?}");
    // What is not the owner's own is refused all the same: the program was root.
    let answer = ckpt(&scene, &["restart", &dir, "--trust-owner"]).failed_with(125);
    assert!(answer.stderr.contains("has user id 0"), "{answer:?}");
}

/// Where there is no store, there is no log either.
#[test]
fn a_variable_that_cannot_be_read_is_said_once_on_stderr() {
    let scene = Scene::new();
    let program = Program::installed("sh").argument("-c").argument("true; sleep 0; exec true");
    for (name, value) in [("CKPT_INTERVAL", "300xs"), ("CKPT_KEEP", "none"), ("CKPT_MEMORY", "lots")] {
        let mut life = Life::preloaded(&scene, name, &program.clone().variable(name, value));
        assert_eq!(code_of(life.wait()), 0);
        let said = life.errors();
        assert!(said.contains(&format!("{name}: cannot read '{value}'")), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

/// A job under `ulimit -S -f`. What its shell has forbidden altogether (`ulimit -f`), only root may allow.
#[test]
fn a_limit_of_files_is_no_limit_of_checkpoints() {
    let scene = Scene::new();
    let inside = Program::installed("sh")
        .argument("-c")
        .argument("ulimit -S -f 100 && exec \"$0\" \"$@\"")
        .argument(Program::victim("large").executable)
        .argument("60");
    let mut life = Life::preloaded(&scene, "life", &inside);
    life.output.wait_for_lines(5);
    ckpt_tests::processes::send(life.pid, nix::sys::signal::Signal::SIGUSR1);
    life.store().wait_for_sealed(&scene, 1);
    assert_eq!(code_of(life.wait()), 7, "{}", life.output.text());
}
