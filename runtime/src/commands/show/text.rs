//! A checkpoint for people.

use std::fmt::Write;

use ckpt_store::Depth;

use super::view::{BytesView, CheckpointView};
use super::{allocations, family};
use crate::commands::table::{Align, Table};
use crate::image::Moved;
use crate::units::{self, printable};

/// The whole answer.
pub fn render(view: &CheckpointView) -> String {
    let mut text = String::new();
    let full = |title, content| (view.depth == Depth::Full).then_some((title, content));
    let sections = [
        Some(("", heading(view))),
        Some(("\nProcesses\n", processes(view))),
        full("\nThreads\n", threads(view).to_string()),
        full("\nRegions\n", regions(view).to_string()),
        Some(("\nAllocations\n", allocations::render(&view.allocations))),
        full("\nDescriptors\n", descriptors(view).to_string()),
        full("\nGPUs\n", devices(view).to_string()).filter(|_| !view.devices.is_empty()),
        full("\nFiles\n", files(view).to_string()),
        Some(("\nWhere the bytes went\n", bytes(&view.bytes))),
        view.moved.map(|moved| ("\nWhat was moved\n", self::moved(&moved))),
    ];
    for (title, content) in sections.into_iter().flatten() {
        text.push_str(title);
        text.push_str(&content);
    }
    text
}

fn heading(view: &CheckpointView) -> String {
    let sealed = view.sealed_unix_s.map_or_else(|| "not".to_owned(), units::local_time);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "Checkpoint {} of job {} ({})", view.id, printable(&view.job), printable(&view.name));
    let _ = writeln!(text, "sealed    {sealed}, triggered by {}", printable(&view.trigger));
    let _ = writeln!(
        text,
        "memory    {}, {} new in the store",
        units::bytes(view.memory_bytes),
        units::bytes(view.new_bytes)
    );
    match (view.pending_bytes, view.behind_bytes) {
        (0, 0) => {}
        (0, behind) => {
            let _ = writeln!(text, "behind    {} of mapped files, stored behind the seal", units::bytes(behind));
        }
        (pending, _) => {
            let _ = writeln!(text, "pending   {} of mapped files, not stored yet", units::bytes(pending));
        }
    }
    if view.depth == Depth::Data {
        text.push_str("depth     data: what the program had allocated; it cannot be restarted from this\n");
    }
    let (stop, total) = (units::milliseconds(view.stop_ms), units::milliseconds(view.total_ms));
    let _ = writeln!(text, "stopped   {stop} ms, {total} ms in all");
    let _ = writeln!(text, "digest    {}", view.digest);
    if view.differences > 0 {
        let _ = writeln!(text, "tree      what is stored so needs {} differences", view.differences);
    }
    let host = &view.host;
    let [release, processor, version] =
        [&host.kernel_release, &host.processor, &host.ckpt_version].map(|text| printable(text));
    let _ = writeln!(text, "host      Linux {release}, {processor}, ckpt {version}");
    text
}

fn processes(view: &CheckpointView) -> String {
    let mut text = String::new();
    if view.processes.len() > 1 || view.processes.iter().any(|process| !process.ended.is_empty()) {
        text.push_str(&family::drawn(&view.processes));
    }
    for process in &view.processes {
        let line = process.command_line.join(" ");
        let _ = write!(text, "pid       {}", process.pid);
        if let (Some(uid), Some(gid), Some(threads)) = (process.uid, process.gid, process.threads) {
            let _ = write!(text, " (uid {uid}, gid {gid}, {threads} threads)");
        }
        text.push('\n');
        let _ = writeln!(text, "file      {}", printable(&process.executable));
        let _ = writeln!(text, "command   {}", printable(&line));
        if let Some(cwd) = &process.cwd {
            let _ = writeln!(text, "cwd       {}", printable(cwd));
        }
    }
    text
}

fn threads(view: &CheckpointView) -> Table {
    let mut table = Table::new(&[("tid", Align::Right), ("name", Align::Left), ("waiting in", Align::Left)]);
    for thread in &view.threads {
        table.row([thread.tid.to_string(), thread.name.clone(), thread.waiting_in.clone().unwrap_or_default()]);
    }
    table
}

fn regions(view: &CheckpointView) -> Table {
    let mut table = Table::new(&[
        ("id", Align::Right),
        ("address", Align::Right),
        ("size", Align::Right),
        ("prot", Align::Left),
        ("kind", Align::Left),
        ("stored", Align::Left),
        ("name", Align::Left),
    ]);
    for region in &view.regions {
        table.row([
            region.id.to_string(),
            region.address.clone(),
            units::bytes(region.bytes),
            region.protection.clone(),
            region.kind.to_owned(),
            region.method.to_owned(),
            region.name.clone(),
        ]);
    }
    table
}

fn devices(view: &CheckpointView) -> Table {
    let mut table = Table::new(&[
        ("pid", Align::Right),
        ("number", Align::Right),
        ("size", Align::Right),
        ("stored by itself", Align::Right),
        ("model", Align::Left),
        ("uuid", Align::Left),
    ]);
    for device in &view.devices {
        table.row([
            device.pid.to_string(),
            device.number.to_string(),
            units::bytes(device.bytes),
            units::bytes(device.stored_bytes),
            printable(&device.model).to_string(),
            device.uuid.clone(),
        ]);
    }
    table
}

fn files(view: &CheckpointView) -> Table {
    let columns = [
        ("id", Align::Right),
        ("size", Align::Right),
        ("mode", Align::Left),
        ("kind", Align::Left),
        ("path", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for file in &view.files {
        let (id, mode, path) = (file.id.clone(), file.mode.clone(), file.path.clone());
        table.row([id, units::bytes(file.bytes), mode, file.kind.to_owned(), path]);
    }
    table
}

fn descriptors(view: &CheckpointView) -> Table {
    let mut table = Table::new(&[
        ("number", Align::Right),
        ("kind", Align::Left),
        ("offset", Align::Right),
        ("target", Align::Left),
        ("flags", Align::Left),
    ]);
    for descriptor in &view.descriptors {
        table.row([
            descriptor.number.to_string(),
            descriptor.kind.to_owned(),
            descriptor.offset.map(|offset| offset.to_string()).unwrap_or_default(),
            descriptor.target.clone(),
            descriptor.flags.join("|"),
        ]);
    }
    table
}

fn moved(moved: &Moved) -> String {
    rows(&[
        ("host", moved.host_bytes, "were read of the program's memory"),
        ("device to host", moved.device_to_host_bytes, "crossed the bus"),
        ("host to device", moved.host_to_device_bytes, "crossed the bus"),
        ("within devices", moved.within_device_bytes, "were copied there"),
    ])
}

fn bytes(bytes: &BytesView) -> String {
    rows(&[
        ("zero", bytes.zero, "cost nothing"),
        ("duplicate", bytes.duplicate, "were in the store already"),
        ("new", bytes.new, "were written"),
        ("compressed", bytes.compressed, "is what the new ones take"),
    ])
}

fn rows(rows: &[(&str, u64, &str)]) -> String {
    let mut table = Table::new(&[("", Align::Left), ("", Align::Right), ("", Align::Left)]);
    for &(name, count, meaning) in rows {
        table.row([name.to_owned(), units::bytes(count), meaning.to_owned()]);
    }
    // The table has no headings.
    table.to_string().trim_start().to_owned()
}
