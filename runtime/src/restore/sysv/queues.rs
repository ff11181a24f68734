//! Message queues: made, emptied if they were there, and filled by the processes that had used them last.

use nix::errno::Errno;

use super::super::process::{Call, HalfBuilt};
use super::objects::{Made, failed, find, make as make_object, place_of};
use crate::error::Result;
use crate::image::{JobImage, SysvMessage, SysvQueue};
use crate::proc::sysvipc::Kind;

const MSGGET: Call = Call("msgget", libc::SYS_msgget);
const MSGRCV: Call = Call("msgrcv", libc::SYS_msgrcv);
const MSGSND: Call = Call("msgsnd", libc::SYS_msgsnd);
const IPC_NOWAIT: u64 = libc::IPC_NOWAIT as u64;

/// Makes the queues that are gone, and puts back what was queued in all.
pub fn make(processes: &mut [HalfBuilt], job: &JobImage, made: &mut Made) -> Result<()> {
    for queue in &job.objects.sysv_queues {
        let identity = &queue.identity;
        let (id, sender, receiver) =
            (identity.id, place_of(processes, queue.sender), place_of(processes, queue.receiver));
        let found = find(job, Kind::Queue, identity, ("key", i64::from(identity.key) as u64))?;
        match &found {
            Some(_) => empty(id)?,
            None => {
                let flags = libc::IPC_CREAT | libc::IPC_EXCL | 0o600;
                let arguments = [u64::from(identity.key as u32), flags as u64];
                make_object(processes, sender, (Kind::Queue, identity), (MSGGET, &arguments), made)?;
            }
        }
        set(queue, identity.mode | 0o600)?;
        // The kernel notes who has sent and received last, and a later checkpoint asks it.
        if queue.receiver != 0 || found.is_some() {
            send(&mut processes[sender], id, &SysvMessage { kind: 1, text: Vec::new() })?;
            receive_nothing(&mut processes[receiver], id)?;
        }
        for message in &queue.messages {
            send(&mut processes[sender], id, message)?;
        }
        set(queue, identity.mode)?;
    }
    Ok(())
}

fn send(process: &mut HalfBuilt, id: i32, message: &SysvMessage) -> Result<()> {
    let address = process.put(&[&message.kind.to_ne_bytes(), message.text.as_slice()].concat())?;
    let arguments = [id as u64, address, message.text.len() as u64, IPC_NOWAIT];
    process.call(0, MSGSND, &arguments, format_args!("a message of {}", Kind::Queue.shown(id))).map(drop)
}

fn receive_nothing(process: &mut HalfBuilt, id: i32) -> Result<()> {
    let address = process.put(&[0; 8])?;
    let arguments = [id as u64, address, 0, 0, IPC_NOWAIT];
    process.call(0, MSGRCV, &arguments, format_args!("an empty message of {}", Kind::Queue.shown(id))).map(drop)
}

/// Takes all messages out of a queue that an earlier life has left.
fn empty(id: i32) -> Result<()> {
    let mut kind = 0i64;
    let flags = libc::IPC_NOWAIT | libc::MSG_NOERROR;
    loop {
        // SAFETY: of a message of no length the call writes its type alone.
        match Errno::result(unsafe { libc::msgrcv(id, (&raw mut kind).cast(), 0, 0, flags) }) {
            Ok(_) => {}
            Err(Errno::ENOMSG) => return Ok(()),
            Err(source) => return Err(failed("empty", Kind::Queue, id)(source)),
        }
    }
}

fn set(queue: &SysvQueue, mode: u32) -> Result<()> {
    let identity = &queue.identity;
    // SAFETY: a msqid_ds is integers, for which zero is a value.
    let mut about: libc::msqid_ds = unsafe { std::mem::zeroed() };
    (about.msg_perm.uid, about.msg_perm.gid, about.msg_perm.mode) = (identity.uid, identity.gid, mode as _);
    about.msg_qbytes = queue.capacity;
    // SAFETY: the call reads one msqid_ds.
    let set = unsafe { libc::msgctl(identity.id, libc::IPC_SET, &raw mut about) };
    Errno::result(set).map(drop).map_err(failed("set the rights of", Kind::Queue, identity.id))
}
