//! The differences for people.

use std::fmt::Write;

use ckpt_store::{Depth, PAGE_BYTES};

use super::regions::State;
use super::view::{AllocationView, CheckpointView, DiffView, RegionView, Totals};
use crate::commands::show::view::{DescriptorView, ThreadView};
use crate::commands::table::{Align, Table};
use crate::units::{self, printable};

/// The whole answer.
pub fn render(view: &DiffView) -> String {
    let mut text = heading(view);
    text.push('\n');
    let both_full = view.a.depth == Depth::Full && view.b.depth == Depth::Full;
    if !both_full {
        text.push_str("allocations alone can be compared: one of them holds no more\n");
    } else if view.regions.is_empty() {
        text.push_str("no region differs\n");
    } else {
        text.push_str(&regions(&view.regions).to_string());
    }
    if both_full {
        text.push_str(&totals(&view.totals));
    }
    text.push_str(&section("Allocations", view.allocations.is_empty(), &allocations(&view.allocations)));
    for (title, threads) in
        [("Threads only in A", &view.threads_only_in_a), ("Threads only in B", &view.threads_only_in_b)]
    {
        text.push_str(&section(title, threads.is_empty(), &thread_table(threads)));
    }
    for (title, descriptors) in
        [("Descriptors only in A", &view.descriptors_only_in_a), ("Descriptors only in B", &view.descriptors_only_in_b)]
    {
        text.push_str(&section(title, descriptors.is_empty(), &descriptor_table(descriptors)));
    }
    text
}

fn heading(view: &DiffView) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "A  {}", named(&view.a));
    let _ = writeln!(text, "B  {}", named(&view.b));
    if !view.same_job {
        let _ = writeln!(text, "They are of different jobs: what lies at the same address need not be the same thing.");
    }
    text
}

fn named(checkpoint: &CheckpointView) -> String {
    let sealed = checkpoint.sealed_unix_s.map_or_else(|| "-".to_owned(), units::local_time);
    let (job, name) = (printable(&checkpoint.job), printable(&checkpoint.name));
    format!("checkpoint {} of job {job} ({name}), sealed {sealed}", checkpoint.id)
}

fn regions(regions: &[RegionView]) -> Table {
    let mut table = Table::new(&[
        ("address", Align::Right),
        ("size", Align::Left),
        ("prot", Align::Left),
        ("state", Align::Left),
        ("changed", Align::Right),
        ("added", Align::Right),
        ("gone", Align::Right),
        ("kind", Align::Left),
        ("name", Align::Left),
    ]);
    for region in regions {
        table.row([
            region.address.clone(),
            from_to(region.bytes_a.map(units::bytes), region.bytes_b.map(units::bytes)),
            from_to(region.protection_a.clone(), region.protection_b.clone()),
            state_word(region.state).to_owned(),
            region.pages_changed.to_string(),
            region.pages_added.to_string(),
            region.pages_gone.to_string(),
            region.kind.to_owned(),
            region.name.clone(),
        ]);
    }
    table
}

/// One value where there is no other, both where they differ.
fn from_to(a: Option<String>, b: Option<String>) -> String {
    match (a, b) {
        (Some(a), Some(b)) if a != b => format!("{a} > {b}"),
        (a, b) => b.or(a).unwrap_or_default(),
    }
}

fn state_word(state: State) -> &'static str {
    match state {
        State::Same => "same",
        State::Changed => "changed",
        State::NotCompared => "not compared",
        State::Resized => "resized",
        State::OnlyInA => "only in A",
        State::OnlyInB => "only in B",
    }
}

fn allocations(allocations: &[AllocationView]) -> Table {
    let mut table = Table::new(&[
        ("id", Align::Right),
        ("address", Align::Left),
        ("size", Align::Left),
        ("state", Align::Left),
        ("changed", Align::Right),
        ("asked for by", Align::Left),
    ]);
    for allocation in allocations {
        table.row([
            allocation.id.to_string(),
            from_to(allocation.address_a.clone(), allocation.address_b.clone()),
            from_to(allocation.bytes_a.map(units::bytes), allocation.bytes_b.map(units::bytes)),
            state_word(allocation.state).to_owned(),
            units::bytes(allocation.bytes_changed),
            allocation.call_site.text(),
        ]);
    }
    table
}

fn totals(totals: &Totals) -> String {
    let pages = |count: u64| format!("{count} ({})", units::bytes(count * PAGE_BYTES as u64));
    format!(
        "\nregions   {} the same, {} changed, {} not compared, {} resized, {} only in A, {} only in B\n\
         pages     {} changed, {} added, {} gone\n",
        totals.regions_same,
        totals.regions_changed,
        totals.regions_not_compared,
        totals.regions_resized,
        totals.regions_only_in_a,
        totals.regions_only_in_b,
        pages(totals.pages_changed),
        pages(totals.pages_added),
        pages(totals.pages_gone),
    )
}

fn section(title: &str, is_empty: bool, table: &Table) -> String {
    if is_empty { String::new() } else { format!("\n{title}\n{table}") }
}

fn thread_table(threads: &[ThreadView]) -> Table {
    let mut table = Table::new(&[("tid", Align::Right), ("name", Align::Left)]);
    for thread in threads {
        table.row([thread.tid.to_string(), thread.name.clone()]);
    }
    table
}

fn descriptor_table(descriptors: &[DescriptorView]) -> Table {
    let mut table = Table::new(&[("number", Align::Right), ("kind", Align::Left), ("target", Align::Left)]);
    for descriptor in descriptors {
        table.row([descriptor.number.to_string(), descriptor.kind.to_owned(), descriptor.target.clone()]);
    }
    table
}
