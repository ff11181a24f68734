//! What processes share by a name on the machine, when the machine has changed between two lives.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use ckpt_tests::ordinary_user::as_ordinary_user;
use ckpt_tests::{Ckpt, Life, Program, Restart, Scene, checkpoint, code_of};

fn is_fifo(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_fifo())
}

/// What a refused restart of `life` says.
fn refused(scene: &Scene, life: &Life<'_>) -> String {
    Ckpt::new(scene, ["restart", &life.store().path().display().to_string()]).call().failed_with(125).stderr
}

/// A life of the victim that is dead, and has a checkpoint of step 5.
fn dead<'scene>(scene: &'scene Scene, program: &Program) -> Life<'scene> {
    let mut life = Life::preloaded(scene, "life", program);
    life.output.wait_for_line("step 5");
    checkpoint(scene, life.pid);
    life.kill();
    life
}

fn goes_on(scene: &Scene, life: &Life<'_>) {
    let mut back = Restart::of(life.store()).begin(scene, &life.directory, life.pid);
    assert_eq!(code_of(back.wait()), 7, "{}\n{}", back.output.text(), back.errors());
}

#[test]
fn a_named_pipe_that_is_gone_is_made_again_with_its_mode() {
    let scene = Scene::new();
    let life = dead(&scene, &Program::victim("fifos"));
    let names = ["both", "to_child", "from_child", "unwritten"].map(|name| life.directory.join(name));
    names.iter().for_each(|name| fs::remove_file(name).expect("it was there"));
    goes_on(&scene, &life);
    for name in names {
        assert!(is_fifo(&name), "{}", name.display());
        assert_eq!(fs::metadata(&name).expect("a fifo").permissions().mode() & 0o7777, 0o640);
    }
}

#[test]
fn what_is_in_the_place_of_a_named_pipe_is_left_there_and_the_restart_refused() {
    let scene = Scene::new();
    let life = dead(&scene, &Program::victim("fifos"));
    let (gone, replaced) = (life.directory.join("to_child"), life.directory.join("both"));
    fs::remove_file(&gone).expect("it was there");
    fs::remove_file(&replaced).expect("it was there");
    fs::write(&replaced, "mine").expect("a file");
    let said = refused(&scene, &life);
    assert!(said.contains("both was a named pipe and is something else now"), "{said}");
    assert_eq!(fs::read_to_string(&replaced).expect("it is there"), "mine");
    assert!(!gone.exists(), "a restart that is refused makes none");
}

#[test]
fn a_named_pipe_that_somebody_else_has_written_into_is_left_as_it_is() {
    let scene = Scene::new();
    let life = dead(&scene, &Program::victim("fifos"));
    let path = life.directory.join("both");
    let mut other = fs::OpenOptions::new().read(true).write(true).open(&path).expect("a fifo");
    std::io::Write::write_all(&mut other, b"mine").expect("there is room");
    let said = refused(&scene, &life);
    assert!(said.contains("another process has written into") && said.contains("both"), "{said}");
    let mut bytes = [0; 10];
    assert_eq!(std::io::Read::read(&mut other, &mut bytes).expect("bytes"), 4, "nothing was added");
    drop(other);
    goes_on(&scene, &life);
}

/// The kinds of System V objects, and the columns of their ids in /proc/sysvipc.
const SYSTEM_V: [(&str, &str); 3] = [("shm", "shmid"), ("sem", "semid"), ("msg", "msqid")];

/// The System V objects of the victim with this pid, by kind and id; how many messages and bytes they have may change.
fn objects_of(pid: i32) -> Vec<(&'static str, i32)> {
    let mut found = Vec::new();
    for (kind, id_column) in SYSTEM_V {
        let text = fs::read_to_string(format!("/proc/sysvipc/{kind}")).expect("a kernel with System V objects");
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().expect("a headline").split_whitespace().collect();
        for line in lines {
            let values: Vec<i64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let value = |name: &str| names.iter().position(|known| *known == name).map_or(0, |place| values[place]);
            let key = 0x4000_0000 | i64::from(pid) << 4;
            if value("cpid") == i64::from(pid) || (key..=key + 1).contains(&value("key")) {
                found.push((kind, value(id_column) as i32));
            }
        }
    }
    found
}

fn remove(objects: &[(&str, i32)]) {
    for &(kind, id) in objects {
        // SAFETY: removing an object takes no argument in memory.
        let removed = unsafe {
            match kind {
                "shm" => libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()),
                "sem" => libc::semctl(id, 0, libc::IPC_RMID),
                _ => libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut()),
            }
        };
        assert_eq!(removed, 0, "{kind} {id}: {}", std::io::Error::last_os_error());
    }
}

fn system_v(kind: &str) -> Program {
    Program::victim("sysv").argument("60").argument(kind)
}

#[test]
fn system_v_objects_that_are_gone_are_made_again_with_their_ids() {
    let scene = Scene::new();
    let life = dead(&scene, &system_v("transient"));
    remove(&objects_of(life.pid));
    assert_eq!(objects_of(life.pid), [], "they are gone");
    goes_on(&scene, &life);
    assert_eq!(objects_of(life.pid), [], "the program has removed all");
}

#[test]
fn system_v_objects_are_where_they_were_left_and_get_back_what_they_held() {
    let scene = Scene::new();
    let life = dead(&scene, &system_v("lasting"));
    let objects = objects_of(life.pid);
    assert_eq!(objects.iter().map(|object| object.0).collect::<Vec<_>>(), ["shm", "shm", "shm", "shm", "sem", "msg"]);
    let (semaphores, queue, kind) = (objects[4].1, objects[5].1, 5_i64);
    // SAFETY: these take numbers, and a message of eight bytes for its type alone.
    unsafe {
        assert_eq!(libc::semctl(semaphores, 2, libc::SETVAL, 1), 0);
        assert_eq!(libc::msgsnd(queue, (&raw const kind).cast(), 0, libc::IPC_NOWAIT), 0);
    }
    goes_on(&scene, &life);
    assert_eq!(objects_of(life.pid), [], "the program has removed all");
}

#[test]
fn a_system_v_id_that_another_object_has_by_now_is_refused_by_name() {
    let scene = Scene::new();
    let life = dead(&scene, &system_v("lasting"));
    let objects = objects_of(life.pid);
    remove(&objects);
    let (_, id) = objects[5];
    fs::write("/proc/sys/kernel/msg_next_id", id.to_string()).expect("root may");
    // SAFETY: takes numbers only.
    let other = unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600) };
    assert_eq!(other, id);
    let said = refused(&scene, &life);
    let expected = format!("give the program its System V message queue {id}: another object has the id by now");
    assert!(said.contains(&expected), "{said}");
    remove(&[("msg", other)]);
    assert_eq!(objects_of(life.pid), [], "a restart that is refused makes none");
    goes_on(&scene, &life);
}

#[test]
fn shared_memory_that_another_program_has_attached_is_refused_by_name() {
    let scene = Scene::new();
    let over = scene.path().join("over");
    let mut life = Life::preloaded(&scene, "life", &system_v("lasting").waiting(40, &over));
    life.output.wait_for_line("step 5");
    let (_, id) = objects_of(life.pid)[0];
    // SAFETY: the kernel chooses a free place.
    let here = unsafe { libc::shmat(id, std::ptr::null(), libc::SHM_RDONLY) };
    assert_ne!(here as isize, -1);
    let answer = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).call().failed_with(4);
    assert!(answer.stderr.contains(&format!("System V shared memory {id}")), "{answer:?}");
    assert!(answer.stderr.contains("a process outside the job has attached it"), "{answer:?}");
    // SAFETY: it was attached there.
    assert_eq!(unsafe { libc::shmdt(here) }, 0);
    checkpoint(&scene, life.pid);
    fs::write(over, "").expect("a file in the scene");
    assert_eq!(code_of(life.wait()), 7, "{}", life.output.text());
}

#[test]
fn an_ordinary_user_who_may_not_choose_ids_is_told_so() {
    as_ordinary_user(&["sysv"], &[], || {
        let scene = Scene::new();
        let life = dead(&scene, &system_v("lasting"));
        let objects = objects_of(life.pid);
        remove(&objects[5..]);
        let said = refused(&scene, &life);
        let id = objects[5].1;
        assert!(said.contains(&format!("make System V message queue {id} again: it is gone")), "{said}");
        assert!(said.contains("CAP_CHECKPOINT_RESTORE"), "{said}");
        remove(&objects[..5]);
    });
}

/// A life of the victim that is dead, whose queue is there, open, by its name without a slash.
fn dead_with_queue(scene: &Scene) -> (Life<'_>, std::ffi::CString, i32) {
    let life = dead(scene, &Program::victim("mqueues"));
    let name = std::ffi::CString::new(format!("ckpt-victim-{}", life.pid)).expect("no zero");
    // SAFETY: the name ends with a zero.
    let queue = unsafe { libc::syscall(libc::SYS_mq_open, name.as_ptr(), libc::O_RDWR | libc::O_NONBLOCK) } as i32;
    assert!(queue >= 0);
    (life, name, queue)
}

fn send(queue: i32) {
    // SAFETY: one byte is read from a string.
    let sent = unsafe { libc::syscall(libc::SYS_mq_timedsend, queue, c"x".as_ptr(), 1_usize, 0, 0_usize) };
    assert_eq!(sent, 0);
}

#[test]
fn a_message_queue_that_is_gone_is_made_again() {
    let scene = Scene::new();
    let (life, name, _) = dead_with_queue(&scene);
    // SAFETY: the name ends with a zero.
    assert_eq!(unsafe { libc::syscall(libc::SYS_mq_unlink, name.as_ptr()) }, 0);
    goes_on(&scene, &life);
}

#[test]
fn a_message_queue_that_was_left_loses_what_came_after_the_checkpoint() {
    let scene = Scene::new();
    let (life, _, queue) = dead_with_queue(&scene);
    send(queue);
    goes_on(&scene, &life);
}

#[test]
fn a_message_queue_that_is_another_by_now_is_left_alone_and_the_restart_refused() {
    let scene = Scene::new();
    let (life, name, _) = dead_with_queue(&scene);
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    // SAFETY: the name ends with a zero, and there are no attributes.
    let other = unsafe {
        assert_eq!(libc::syscall(libc::SYS_mq_unlink, name.as_ptr()), 0);
        libc::syscall(libc::SYS_mq_open, name.as_ptr(), flags, 0o600, 0_usize) as i32
    };
    assert!(other >= 0);
    send(other);
    let said = refused(&scene, &life);
    assert!(
        said.contains(&format!("open message queue /ckpt-victim-{}: it is another one by now", life.pid)),
        "{said}"
    );
    // SAFETY: the name ends with a zero.
    assert_eq!(unsafe { libc::syscall(libc::SYS_mq_unlink, name.as_ptr()) }, 0, "it is there");
    goes_on(&scene, &life);
}
