//! What the agent may want done while devices are held still, and what there is of it at the end of a hold.

use core::ffi::c_int;

use ckpt_wire::allocations::CUDA_MAPPED;
use ckpt_wire::device::{
    Answer, COMMAND_BUFFER, COMMAND_CLOSE, COMMAND_COPY, COMMAND_EXPORT, COMMAND_IDENTIFY, COMMAND_RENEW,
    COMMAND_STAGE, COMMAND_UNSTAGE, COMMAND_VARIABLE, Command,
};

use super::super::backing::{calls, renewal};
use super::super::contexts;
use super::super::driver::{CuResult, Handle, SUCCESS};
use super::super::records;
use super::functions::{self, NON_BLOCKING};
use super::stages::Stages;
use super::{NO_ANSWER, line, variables};
use crate::sys;

/// `CUDA_ERROR_INVALID_VALUE`.
pub const INVALID: CuResult = 1;
/// `CUDA_ERROR_INVALID_CONTEXT`.
pub const NO_CONTEXT: CuResult = 201;

/// What a call of the driver's has come to.
pub fn done(result: CuResult) -> Result<(), CuResult> {
    if result == SUCCESS { Ok(()) } else { Err(result) }
}

/// What the keeper has made for the agent during a hold.
pub struct Session {
    /// The descriptor of the last export, and the file that it is of.
    exported: Option<(i32, [u64; 2])>,
    stages: Stages,
    /// The stream that copies go through, and its context.
    stream: Option<(Handle, Handle)>,
    /// Memory of the host, for what is to be copied.
    buffer: Option<(*mut u8, usize)>,
}

impl Session {
    pub const fn new() -> Self {
        Self { exported: None, stages: Stages::new(), stream: None, buffer: None }
    }

    /// Does what is wanted. The error is the driver's, or a negative number of the kernel's.
    pub fn carry_out(&mut self, command: Command) -> Result<Answer, i32> {
        match command.what {
            COMMAND_IDENTIFY => identify(command.device),
            COMMAND_EXPORT => self.export(command.address),
            COMMAND_CLOSE => {
                self.close();
                Ok(NO_ANSWER)
            }
            COMMAND_STAGE => {
                enter_context_of(command.device)?;
                let (address, bytes) = self.stages.make(command.device, command.bytes)?;
                Ok(Answer { values: [address, bytes], ..NO_ANSWER })
            }
            COMMAND_UNSTAGE => {
                self.close();
                self.stages.give_back(command.address).map(|()| NO_ANSWER)
            }
            COMMAND_COPY => self.copy(&command).map(|()| NO_ANSWER),
            COMMAND_BUFFER => {
                let address = self.make_buffer(command.bytes as usize)?;
                Ok(Answer { values: [address as u64, 0], ..NO_ANSWER })
            }
            COMMAND_RENEW => renewal::renew_all().map(|left| Answer { values: [left, 0], ..NO_ANSWER }),
            COMMAND_VARIABLE => {
                // SAFETY: the agent has written a zero-terminated name there.
                let (found, new) = unsafe { variables::record(command.to, command.address as *const _) }?;
                Ok(Answer { values: [found, new], ..NO_ANSWER })
            }
            _ => Err(INVALID),
        }
    }

    fn export(&mut self, address: u64) -> Result<Answer, i32> {
        self.close();
        let descriptor = renewal::export(address).unwrap_or_else(|| calls::export(address))?;
        if let Some(mapped) = records::at(address).filter(|found| found.what() == CUDA_MAPPED) {
            // The program's own, which stays the driver's when the devices are suspended.
            records::mark_exported(mapped.owner);
        }
        let file = sys::adopt(descriptor).map_err(|errno| -errno.0)?;
        self.exported = Some((descriptor, file));
        Ok(Answer { values: [descriptor as u64, 0], ..NO_ANSWER })
    }

    fn close(&mut self) {
        if let Some((descriptor, file)) = self.exported.take() {
            sys::close_adopted(descriptor, file);
        }
    }

    fn make_buffer(&mut self, bytes: usize) -> Result<*mut u8, i32> {
        self.give_buffer_back();
        let address = sys::map_zeros(bytes).map_err(|errno| -errno.0)?;
        self.buffer = Some((address, bytes));
        Ok(address)
    }

    fn give_buffer_back(&mut self) {
        if let Some((address, bytes)) = self.buffer.take() {
            // SAFETY: ours; every copy from there has been waited for.
            unsafe { sys::unmap(address, bytes) };
        }
    }

    fn copy(&mut self, command: &Command) -> Result<(), i32> {
        let stream = self.stream_on(command.device)?;
        // SAFETY: the driver knows whether these addresses may be copied between.
        done(unsafe { functions::copy(command.to, command.address, command.bytes as usize, stream) })?;
        // SAFETY: a live stream.
        done(unsafe { functions::synchronise_stream(stream) })
    }

    /// One that no work of the program's is in order with.
    fn stream_on(&mut self, device: c_int) -> Result<Handle, i32> {
        let context = enter_context_of(device)?;
        if let Some((of, stream)) = self.stream
            && of == context
        {
            return Ok(stream);
        }
        self.end_stream();
        let mut stream = core::ptr::null_mut();
        // SAFETY: a place to write to, and a context to make it in.
        done(unsafe { functions::create_stream(&raw mut stream, NON_BLOCKING) })?;
        self.stream = Some((context, stream));
        Ok(stream)
    }

    fn end_stream(&mut self) {
        if let Some((_, stream)) = self.stream.take() {
            // SAFETY: ours.
            unsafe { functions::destroy_stream(stream) };
        }
    }

    /// Takes all away, and leaves the context.
    pub fn end(mut self) {
        self.close();
        self.end_stream();
        self.stages.end();
        self.give_buffer_back();
        // SAFETY: no context is as good as any.
        unsafe { functions::set_current(core::ptr::null_mut()) };
    }
}

/// Makes a context of the device's the keeper's own. If the hold is over, contexts may end any moment.
fn enter_context_of(device: c_int) -> Result<Handle, i32> {
    let mut all = contexts::all().filter(|_| !line::is_over()).ok_or(NO_CONTEXT)?;
    let (_, context) = all.find(|&(of, _)| of == device).ok_or(NO_CONTEXT)?;
    // SAFETY: a context of the program's, which cannot end while the gate is closed.
    done(unsafe { functions::set_current(context) }).map(|()| context)
}

fn identify(device: c_int) -> Result<Answer, i32> {
    let mut uuid = [0_u64; 2];
    // SAFETY: a place for 16 bytes.
    done(unsafe { functions::identify(&raw mut uuid, device) })?;
    Ok(Answer { values: uuid, ..NO_ANSWER })
}
