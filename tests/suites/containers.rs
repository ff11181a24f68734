//! Programs in podman's containers as people run them: the default seccomp filter, the default capabilities, a fresh container of
//! the same image for each life. They want root, and the image that `tests/container-image` makes.

use std::fs;
use std::time::Duration;

use ckpt_tests::exact::assert_same;
use ckpt_tests::podman::{self, Container, Pod, victim};
use ckpt_tests::until_done::script;
use ckpt_tests::{Program, Scene, product};
use nix::libc::{ENOSYS, EPERM};

/// The step behind which a victim waits for the last life, so that none comes to its end before.
const WAITS_AT: usize = 150;
const STEPS: &str = "200";
const CKPT: &str = "/opt/ckpt/ckpt";
/// What Kubernetes calls "restricted", with its runtime's default seccomp profile.
const RESTRICTED: [&str; 3] = ["--user=1000", "--cap-drop=ALL", "--security-opt=no-new-privileges"];

fn scene() -> Scene {
    Scene::of_at_most(Duration::from_secs(300))
}

/// Steps wait behind one of them until [`let_go`].
fn patient<'scene>(pod: &Pod<'scene>) -> Pod<'scene> {
    let at = format!("--env=CKPT_VICTIM_WAITS_AT={WAITS_AT}");
    pod.clone().options(&[&at, "--env=CKPT_VICTIM_WAITS_FOR=/job/go"])
}

fn let_go(pod: &Pod<'_>) {
    fs::write(pod.directory.join("go"), "").expect("the job's folder is writable");
}

/// A program whose steps are lines, in three containers: what all print together is what an uninterrupted life prints.
#[track_caller]
fn goes_on_twice(pod: &Pod<'_>, program: &[&str]) {
    goes_on_after(pod, program, |container| container.checkpoint_by_signal());
}

/// The same with another way to take the first checkpoint.
#[track_caller]
fn goes_on_after(pod: &Pod<'_>, program: &[&str], take: impl Fn(&Container<'_>) -> u64) {
    let expected = pod.uninterrupted(program);
    let pod = &patient(pod);
    let first = pod.run(program);
    first.wait_for_lines(5);
    take(&first);
    first.wait_for_more_lines(3);
    let before = first.printed().len();
    first.checkpoint(&[]);
    first.wait_for_more_lines(3);
    let printed = first.printed();
    assert!(expected.0.starts_with(&printed), "the first life went astray: {printed}");
    first.remove();
    ends_well(pod, before..=printed.len(), &expected);
}

/// A second and a third life of a program that had printed something between so many bytes at its newest checkpoint.
#[track_caller]
fn ends_well(pod: &Pod<'_>, possible: std::ops::RangeInclusive<usize>, (expected, code): &(String, i32)) {
    let second = pod.restart();
    second.wait_for_more_lines(3);
    second.save_and_end();
    let printed = second.printed();
    second.remove();

    let_go(pod);
    let third = pod.restart();
    assert_eq!(third.wait(), *code, "{}", third.messages());
    let rest = printed + &third.printed();
    assert!(expected.ends_with(&rest), "expected\n{expected}\nfound in the second and third life\n{rest}");
    let from = expected.len() - rest.len();
    assert!(possible.contains(&from), "the second life begins at byte {from}, not in {possible:?}");
}

/// A program that each `podman stop` saves, in three containers with these entry points.
#[track_caller]
fn goes_on_after_stops(pod: &Pod<'_>, expected: &(String, i32), entry_points: [&[&str]; 3]) {
    let mut printed = String::new();
    for (life, words) in entry_points[..2].iter().enumerate() {
        let container = pod.start(*words);
        container.wait_for_more_lines(5);
        assert_eq!(container.stop(30), 85, "{}", container.messages());
        printed += &container.printed();
        assert!(expected.0.starts_with(&printed), "life {life}: {printed}");
    }
    let_go(pod);
    let last = pod.start(entry_points[2]);
    assert_eq!(last.wait(), expected.1, "{}", last.messages());
    printed += &last.printed();
    assert_same(printed.as_bytes(), expected.0.as_bytes(), "the output of three containers");
}

#[test]
fn eight_threads_go_on_in_a_second_and_a_third_container() {
    let scene = scene();
    let Some(pod) = Pod::new(&scene) else { return };
    goes_on_twice(&pod, &[&victim("threads8"), STEPS]);
}

/// The path of a victim in a container.
fn shown(program: &Program) -> String {
    format!("/opt/victims/{}", program.executable.file_name().expect("a file").display())
}

#[test]
#[ignore = "long: it builds a ckpt that is statically linked"]
fn a_program_with_musl_goes_on_where_there_is_no_glibc() {
    let scene = Scene::of_at_most(Duration::from_secs(900));
    let Some(pod) = Pod::without_glibc(&scene) else { return };
    let doctor = pod.start([CKPT, "doctor"]);
    assert_eq!(doctor.wait(), 0, "{}", doctor.printed());
    assert!(doctor.printed().contains("this ckpt is statically linked"), "{}", doctor.printed());
    goes_on_twice(&pod, &[&shown(&Program::with_musl("threads8")), STEPS]);
}

#[test]
#[ignore = "long: it builds a ckpt that is statically linked"]
fn a_program_that_has_musl_in_it_goes_on_where_there_is_no_glibc() {
    let scene = Scene::of_at_most(Duration::from_secs(900));
    let Some(pod) = Pod::without_glibc(&scene) else { return };
    // It loads no libckpt.so, so no signal takes a checkpoint of it.
    let by_command = |container: &Container<'_>| container.checkpoint(&[]);
    goes_on_after(&pod, &[&shown(&Program::with_musl_in_it("threads8")), STEPS], by_command);
}

#[test]
fn a_server_and_its_client_go_on_in_a_second_and_a_third_container() {
    let scene = scene();
    let Some(pod) = Pod::new(&scene) else { return };
    goes_on_twice(&pod, &["python3", "/opt/scripts/both_ends.py", STEPS, "8000"]);
}

#[test]
fn podman_stop_saves_a_program_and_the_next_container_goes_on_exactly() {
    let scene = scene();
    let Some(pod) = Pod::new(&scene) else { return };
    let program = ["python3", "/opt/scripts/lines.py", STEPS];
    let expected = pod.uninterrupted(&program);
    let pod = patient(&pod).option("--env=CKPT_ON_TERM=1");
    let restart = [CKPT, "restart"];
    goes_on_after_stops(&pod, &expected, [&[&[CKPT, "run", "--"], &program[..]].concat(), &restart, &restart]);
}

#[test]
fn a_listener_answers_in_a_container_with_other_names_and_addresses() {
    let scene = scene();
    let Some(pod) = Pod::new(&scene) else { return };
    let surroundings = |name: &str, address: &str| {
        let folder = scene.folder(name);
        let volume = format!("--volume={}:/scratch", folder.display());
        let (host, dns) = (format!("--hostname={name}"), format!("--dns={address}"));
        (folder, patient(&pod).options(&[&host, &dns, &volume, "--env=TMPDIR=/scratch"]))
    };
    let (folder, pod) = surroundings("one", "192.0.2.1");
    fs::write(folder.join("mine"), "").expect("a file in the scene");
    let first = pod.run(&["python3", "/opt/scripts/both_ends.py", STEPS, "8000"]);
    first.wait_for_lines(5);
    first.checkpoint(&[]);
    let seen = |container: &Container<'_>| {
        ["hostname", "hostname -I", "cat /etc/resolv.conf", "ls /scratch"]
            .map(|line| container.shell(line).succeeded().stdout)
    };
    let before = seen(&first);
    let (_, other) = surroundings("two", "192.0.2.2");
    // The first one has its address until the second one has another.
    let second = other.restart();
    second.wait_for_more_lines(3);
    first.remove();
    let now = seen(&second);
    assert!(before.iter().zip(&now).all(|(before, now)| before != now), "{before:?} {now:?}");
    let asks = "import socket, sys\n\
                address = socket.gethostbyname(socket.gethostname())\n\
                stream = socket.create_connection((address, 8000), 20).makefile('rwb')\n\
                stream.write(b'hello\\n'); stream.flush(); print(address, stream.readline().decode().strip())";
    let answered = second.exec(["python3", "-c", asks]).succeeded().stdout;
    let sha1_of_hello = "f572d396fae9206628714fb2ce00f72e94f2258f";
    assert_eq!(answered.trim(), format!("{} {sha1_of_hello}", now[1].trim()));
}

#[test]
fn a_filter_that_a_program_adds_in_a_container_is_refused_by_name() {
    let scene = scene();
    let Some(pod) = Pod::new(&scene) else { return };
    let container = pod.run(&[&victim("refused"), "150", "seccomp"]);
    container.wait_for_lines(5);
    let refused = container.exec([CKPT, "checkpoint", &container.program().to_string()]).failed_with(4);
    assert!(
        refused.stderr.contains("a seccomp filter that the program has added on thread 1000"),
        "{}",
        refused.stderr
    );
    assert_eq!(container.wait(), 7, "the program runs on: {}", container.printed());
}

#[track_caller]
fn program_goes_on(program: &[&str]) {
    let scene = scene();
    let Some(pod) = Pod::new(&scene) else { return };
    goes_on_twice(&pod, program);
}

#[test]
#[ignore = "four containers: scripts/test --all"]
fn processes_that_python_has_started_go_on() {
    program_goes_on(&["python3", "/opt/scripts/pool.py", STEPS]);
}

#[test]
#[ignore = "four containers: scripts/test --all"]
fn a_pipeline_of_bash_goes_on() {
    program_goes_on(&["bash", "/opt/scripts/pipeline.bash", STEPS]);
}

#[test]
#[ignore = "four containers: scripts/test --all"]
fn redis_and_its_client_go_on() {
    program_goes_on(&["python3", "/opt/scripts/redis.py", STEPS]);
}

#[test]
#[ignore = "four containers: scripts/test --all"]
fn processes_and_what_they_share_go_on() {
    program_goes_on(&[&victim("family"), STEPS]);
}

#[test]
#[ignore = "four containers: scripts/test --all"]
fn node_goes_on() {
    let scene = scene();
    let Some(pod) = Pod::new(&scene) else { return };
    // SIGUSR1 is node's own.
    goes_on_after(&pod, &["node", "/opt/scripts/lines.js", STEPS], |container| container.checkpoint(&[]));
}

#[test]
#[ignore = "three containers: scripts/test --all"]
fn the_data_of_redis_is_there_in_the_next_container() {
    const KEYS: usize = 1000;
    let scene = scene();
    let Some(pod) = Pod::new(&scene) else { return };
    let call = |container: &Container<'_>, words: &str| {
        container.shell(&format!("redis-cli {words}")).succeeded().stdout.trim().to_owned()
    };
    let first = pod.run(&["redis-server", "--save", "", "--appendonly", "no"]);
    first.wait_until("redis answers", || first.shell("redis-cli PING").stdout.trim() == "PONG");
    call(&first, &format!("EVAL 'for i = 1, {KEYS} do redis.call(\"SET\", \"key\" .. i, i * i) end' 0"));
    first.checkpoint(&[]);
    call(&first, "SET later 1");
    first.remove();
    for life in 1..3 {
        let next = pod.restart();
        next.wait_until("redis answers", || next.shell("redis-cli PING").stdout.trim() == "PONG");
        assert_eq!(call(&next, "DBSIZE"), (KEYS + life - 1).to_string());
        assert_eq!(call(&next, "GET key999"), "998001");
        call(&next, &format!("SET new{life} {life}"));
        next.checkpoint(&[]);
    }
}

#[track_caller]
fn threads_go_on_in(changed: impl for<'scene> FnOnce(Pod<'scene>) -> Pod<'scene>) {
    let scene = scene();
    let Some(pod) = Pod::new(&scene) else { return };
    goes_on_twice(&changed(pod), &[&victim("threads8"), STEPS]);
}

#[test]
#[ignore = "four containers: scripts/test --all"]
fn an_ordinary_user_of_a_container_goes_on() {
    threads_go_on_in(|pod| pod.option("--user=1000"));
}

#[test]
#[ignore = "four containers: scripts/test --all"]
fn a_container_that_is_read_only_but_for_the_store_goes_on() {
    threads_go_on_in(|pod| pod.options(&["--read-only", "--read-only-tmpfs=false"]));
}

#[test]
#[ignore = "four containers: scripts/test --all"]
fn a_container_with_no_rights_at_all_goes_on() {
    threads_go_on_in(|pod| pod.options(&RESTRICTED));
}

#[test]
#[ignore = "four containers: scripts/test --all"]
fn dockers_seccomp_profile_goes_on_with_the_right_to_trace() {
    threads_go_on_in(|pod| pod.under_profile_of_docker().option("--cap-add=SYS_PTRACE"));
}

#[test]
#[ignore = "four containers: scripts/test --all"]
fn a_container_without_a_seccomp_profile_goes_on() {
    threads_go_on_in(|pod| pod.option("--security-opt=seccomp=unconfined"));
}

#[test]
#[ignore = "four containers: scripts/test --all"]
fn a_profile_without_clone3_goes_on() {
    threads_go_on_in(|pod| pod.without_calls(&["clone3"], ENOSYS));
}

#[test]
#[ignore = "four containers: scripts/test --all"]
fn a_profile_without_unshare_goes_on() {
    threads_go_on_in(|pod| pod.without_calls(&["unshare"], EPERM));
}

#[test]
#[ignore = "four containers: scripts/test --all"]
fn dockers_seccomp_profile_goes_on() {
    threads_go_on_in(|pod| pod.under_profile_of_docker());
}

#[test]
#[ignore = "four containers: scripts/test --all"]
fn a_profile_without_pidfd_getfd_goes_on() {
    threads_go_on_in(|pod| pod.without_calls(&["pidfd_getfd"], EPERM));
}

#[test]
#[ignore = "four containers: scripts/test --all"]
fn a_profile_without_access_to_others_memory_goes_on() {
    threads_go_on_in(|pod| pod.without_calls(&["process_vm_readv", "process_vm_writev"], EPERM));
}

#[test]
#[ignore = "a container: scripts/test --all"]
fn a_profile_without_ptrace_is_refused_by_name() {
    let scene = scene();
    let Some(pod) = Pod::new(&scene) else { return };
    let pod = pod.without_calls(&["ptrace"], EPERM);
    let container = pod.run(&[&victim("threads8"), STEPS]);
    container.wait_for_lines(3);
    let refused = container.exec([CKPT, "checkpoint", &container.program().to_string()]).failed_with(5);
    assert!(refused.stderr.contains("a seccomp filter forbids ptrace"), "{}", refused.stderr);
    container.wait_for_more_lines(3);
}

#[test]
#[ignore = "an image for an ordinary user, and five containers: scripts/test --all"]
fn rootless_containers_go_on() {
    let scene = scene();
    let Some(pod) = Pod::new(&scene).and_then(Pod::rootless) else { return };
    goes_on_twice(&pod, &[&victim("threads8"), STEPS]);
}

#[test]
fn the_doctor_of_a_default_container_says_that_a_restart_can_work() {
    let scene = scene();
    let Some(pod) = Pod::new(&scene) else { return };
    let container = pod.start([CKPT, "doctor"]);
    assert_eq!(container.wait(), 0, "{}", container.printed());
    assert!(container.printed().contains("\nCheckpoint and restart work here"), "{}", container.printed());
    assert_eq!(container.messages(), "");
}

/// What `ckpt doctor` says of a probe in a container.
fn probe(container: &Container<'_>, name: &str) -> String {
    let rows = container.exec([CKPT, "doctor", "--json"]).json();
    let row = rows.as_array().expect("a list").iter().find(|row| row["probe"] == name).expect("this probe").clone();
    row["state"].as_str().expect("a state").to_owned()
}

#[test]
#[ignore = "four containers: scripts/test --all"]
fn capabilities_that_are_there_are_used() {
    let scene = scene();
    let Some(pod) = Pod::new(&scene) else { return };
    let program = [&*victim("threads8"), STEPS];
    let pod = pod.options(&["--cap-add=CHECKPOINT_RESTORE", "--cap-add=SYS_PTRACE"]);
    let expected = pod.uninterrupted(&program);
    let pod = patient(&pod);
    let first = pod.run(&program);
    first.wait_for_lines(5);
    first.checkpoint(&[]);
    for name in ["set_tid", "exe link", "kcmp"] {
        assert_eq!(probe(&first, name), "ok", "{name}");
    }
    let printed = first.printed();
    first.remove();
    let second = pod.restart();
    second.wait_for_more_lines(3);
    // A chosen id, and the link to the executable, which needs the same right.
    let link = second.shell(&format!("readlink /proc/{}/exe", second.program())).succeeded();
    assert_eq!(link.stdout.trim(), program[0], "{}", second.messages());
    assert_eq!(second.messages(), "");
    second.save_and_end();
    second.remove();
    let_go(&pod);
    let third = pod.restart();
    assert_eq!(third.wait(), expected.1, "{}", third.messages());
    assert!(expected.0.ends_with(&third.printed()) && expected.0.starts_with(&printed));
}

/// An image that is removed with this.
struct Built(String);

impl Drop for Built {
    fn drop(&mut self) {
        podman::remove_image(&self.0);
    }
}

#[test]
#[ignore = "an image, and four containers: scripts/test --all"]
fn the_containerfile_makes_an_image_whose_program_podman_stop_saves() {
    let scene = scene();
    let Some(pod) = Pod::new(&scene) else { return };
    let program = [&*victim("threads8"), STEPS];
    let expected = pod.uninterrupted(&program);
    // As it lies in the repository; the target directory may be elsewhere.
    let context = scene.folder("context");
    for (from, to) in [
        (product::ckpt(), "target/release/ckpt"),
        (product::library(), "target/release/libckpt.so"),
        (script(), "scripts/ckpt-run-until-done"),
    ] {
        let to = context.join(to);
        fs::create_dir_all(to.parent().expect("a folder")).expect("the scene is writable");
        fs::copy(from, to).expect("a copy");
    }
    let built = Built(format!("localhost/ckpt-tests-heat:{}", std::process::id()));
    let base = format!("--build-arg=BASE={}", podman::image().expect("it is there"));
    let containerfile = product::repository().join("scripts/batch/Containerfile");
    podman::build(&built.0, &containerfile.to_string_lossy(), &context, &[&base]);
    let pod = patient(&pod).of_image(&built.0);
    goes_on_after_stops(&pod, &expected, [&program; 3]);
}

/// The shell scripts of a document: each text behind a line `- |`, without its indentation.
fn scripts_of(document: &str) -> Vec<String> {
    let text = fs::read_to_string(product::repository().join(document)).expect("the document");
    let mut found = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim() != "- |" {
            continue;
        }
        let indent = line.len() - line.trim_start().len() + 2;
        let mut script = String::new();
        while let Some(line) = lines.next_if(|line| line.len() > indent && line[..indent].trim().is_empty()) {
            script += &line[indent..];
            script.push('\n');
        }
        found.push(script);
    }
    found
}

#[test]
#[ignore = "seven containers: scripts/test --all"]
fn the_recipes_for_kubernetes_go_on_after_the_end_of_their_pods() {
    let scene = scene();
    let Some(pod) = Pod::new(&scene) else { return };
    let program = victim("threads8");
    let words = [program.as_str(), STEPS];
    let expected = pod.uninterrupted(&words);
    let [copies, starts, hook] = <[String; 3]>::try_from(scripts_of("docs/kubernetes.md")).expect("three scripts");
    // ckpt comes from another image, by an init container, into a volume that is another one in each pod.
    let from_image = [
        format!("--volume={}:/usr/local/bin/ckpt:ro", product::ckpt().display()),
        format!("--volume={}:/usr/local/bin/libckpt.so:ro", product::library().display()),
        format!("--volume={}:/usr/local/bin/ckpt-run-until-done:ro", script().display()),
    ];
    let pod = patient(&pod).options(&RESTRICTED);
    let start = starts.replace("./app input", &words.join(" "));
    assert_ne!(start, starts, "the recipe starts ./app input");
    let mut printed = String::new();
    for life in 0..3 {
        let folder = scene.folder(&format!("tools-{life}"));
        std::os::unix::fs::chown(&folder, Some(1000), Some(1000)).expect("root may");
        let pod = pod.clone().option(format!("--volume={}:/ckpt", folder.display()));
        let first = from_image.iter().fold(pod.clone(), Pod::option);
        let init = first.start(["sh", "-c", &copies]);
        assert_eq!(init.wait(), 0, "{}", init.messages());
        if life == 2 {
            let_go(&pod);
        }
        let container = pod.start(["sh", "-c", &start]);
        if life < 2 {
            container.wait_for_more_lines(5);
            if life == 1 {
                container.shell(&hook).succeeded();
                assert_eq!(pod.store().sealed(&scene).len(), 2, "of the first life's end, and of the hook");
            }
            assert_eq!(container.stop(30), 85, "{}", container.messages());
        } else {
            assert_eq!(container.wait(), expected.1, "{}", container.messages());
        }
        printed += &container.printed();
    }
    assert_same(printed.as_bytes(), expected.0.as_bytes(), "the output of three pods");
}
