//! Which devices stand for those that a job had, on the machine that it is restarted on.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::unistd::geteuid;

use crate::error::{Error, Result};
use crate::image::{DeviceImage, DevicesImage, JobImage, device_name};
use crate::survey::{Device, Survey};

/// How the driver names a device in every process.
type Uuid = [u8; 16];

/// The device that stands for each that is not there; none if all are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replacements(BTreeMap<Uuid, Uuid>);

impl Replacements {
    /// Chooses for all processes of a job at once: two that had different devices have different ones again.
    ///
    /// # Errors
    /// When this machine has no driver, one that cannot do it, or no devices that would do.
    pub fn find(job: &JobImage) -> Result<Replacements> {
        let with_devices: Vec<&DevicesImage> =
            job.processes.iter().filter_map(|it| it.devices.as_ref()).filter(|it| !it.devices.is_empty()).collect();
        let Some(first) = with_devices.first() else { return Ok(Replacements::default()) };
        let driver = Path::new(OsStr::from_bytes(&first.driver));
        // One of the same name where the dynamic linker looks, if the file is not where it was.
        let driver = if driver.exists() { driver } else { Path::new("libcuda.so.1") };
        // Root loads no library that somebody else has named.
        let [_, user, ..] = job.root().uids;
        let [_, group, ..] = job.root().gids;
        let survey = Survey::apart(driver, (geteuid().is_root() && user != 0).then_some((user, group)))?;
        if !survey.can_checkpoint {
            return Err(Error::unsupported(
                "restarting a program with CUDA devices",
                "this CUDA driver has no calls for it, which are there from version 570 on",
                "restart it on a host with a newer one",
            ));
        }
        Replacements::among(&wanted(&with_devices), &survey.devices)
    }

    fn among(wanted: &[DeviceImage], there: &[Device]) -> Result<Replacements> {
        let known: BTreeSet<Uuid> = wanted.iter().map(|device| device.uuid).collect();
        let mut free: Vec<&Device> = there.iter().filter(|device| !known.contains(&device.uuid)).collect();
        let mut replacements = BTreeMap::new();
        for device in wanted {
            if let Some(same) = there.iter().find(|one| one.uuid == device.uuid) {
                if same.bytes < device.used_bytes {
                    return Err(too_small(device, same));
                }
                continue;
            }
            let fits = |one: &&Device| {
                let is_same_model = device.model.is_empty() || one.model == device.model;
                let runs_its_code = device.capability == (0, 0) || one.capability == device.capability;
                is_same_model && runs_its_code && one.bytes >= device.used_bytes
            };
            let Some(place) = free.iter().position(fits) else { return Err(none_fits(device, there)) };
            replacements.insert(device.uuid, free.remove(place).uuid);
        }
        Ok(Replacements(replacements))
    }

    /// What the driver is to be told for a process: each device that it had, and the one that stands for it; nothing if each stands
    /// for itself. 32 bytes each.
    pub fn pairs(&self, image: &DevicesImage) -> Vec<u8> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let pair = |device: &DeviceImage| [device.uuid, *self.0.get(&device.uuid).unwrap_or(&device.uuid)].concat();
        image.devices.iter().flat_map(pair).collect()
    }
}

/// All devices that processes had, each once, with what all of them had there; those with most first.
fn wanted(images: &[&DevicesImage]) -> Vec<DeviceImage> {
    let mut all: Vec<DeviceImage> = Vec::new();
    for device in images.iter().flat_map(|image| &image.devices) {
        match all.iter_mut().find(|known| known.uuid == device.uuid) {
            Some(known) => known.used_bytes += device.used_bytes,
            None => all.push(device.clone()),
        }
    }
    all.sort_by_key(|device| std::cmp::Reverse(device.used_bytes));
    all
}

fn too_small(device: &DeviceImage, same: &Device) -> Error {
    Error::environment(
        format!("giving the program its device {} back", device.name()),
        format!("it had {} MiB there, and the device has {} MiB", device.used_bytes >> 20, same.bytes >> 20),
        "restart it where the device has as much memory as it had",
    )
}

fn none_fits(device: &DeviceImage, there: &[Device]) -> Error {
    let DeviceImage { model, used_bytes, .. } = device;
    let model = if model.is_empty() { "a device" } else { model };
    let known: Vec<String> = there
        .iter()
        .map(|one| format!("{} ({} MiB, {})", one.model, one.bytes >> 20, device_name(&one.uuid)))
        .collect();
    let there = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Error::environment(
        format!("finding a device for {} ({model}), where the program had {} MiB", device.name(), used_bytes >> 20),
        format!(
            "there is no other of that model, with that much memory, that none of its processes had; there are: {there}"
        ),
        "restart it on a host with as many devices of the same model",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn had(uuid: u8, used_bytes: u64) -> DeviceImage {
        DeviceImage { uuid: [uuid; 16], model: "H200".to_owned(), capability: (9, 0), used_bytes }
    }

    fn there(uuid: u8, model: &str, bytes: u64) -> Device {
        Device { uuid: [uuid; 16], model: model.to_owned(), capability: (9, 0), bytes }
    }

    fn image(devices: Vec<DeviceImage>) -> DevicesImage {
        DevicesImage { hold: 1, driver: Vec::new(), devices, pieces: Vec::new(), evacuated_bytes: 0 }
    }

    #[test]
    fn devices_that_are_there_stand_for_themselves() {
        let found = Replacements::among(&[had(1, GIB), had(2, 0)], &[there(2, "H200", GIB), there(1, "H200", GIB)]);
        let found = found.unwrap();
        assert_eq!(found, Replacements::default());
        assert!(found.pairs(&image(vec![had(1, GIB)])).is_empty());
    }

    #[test]
    fn one_that_is_not_there_has_another_of_its_model_that_none_had() {
        let all = [there(1, "H200", GIB), there(7, "H100", 9 * GIB), there(8, "H200", GIB / 2), there(9, "H200", GIB)];
        let found = Replacements::among(&[had(2, GIB), had(1, 0)], &all).unwrap();
        let pairs = found.pairs(&image(vec![had(1, 0), had(2, GIB)]));
        assert_eq!(pairs, [[1; 16], [1; 16], [2; 16], [9; 16]].concat(), "the driver wants to be told all");
        let none = Replacements::among(&[had(2, GIB), had(3, GIB)], &all[1..]).unwrap_err().to_string();
        assert!(none.contains("GPU-03030303") && none.contains("1024 MiB"), "{none}");
    }

    #[test]
    fn one_that_has_become_too_small_is_refused() {
        let error = Replacements::among(&[had(1, 2 * GIB)], &[there(1, "H200", GIB)]).unwrap_err().to_string();
        assert!(error.contains("2048 MiB"), "{error}");
    }

    #[test]
    fn what_several_processes_had_on_a_device_counts_together() {
        let (first, second) = (image(vec![had(1, GIB), had(2, 1)]), image(vec![had(1, GIB), had(3, 5)]));
        let all: Vec<_> = wanted(&[&first, &second]).iter().map(|one| (one.uuid[0], one.used_bytes)).collect();
        assert_eq!(all, [(1, 2 * GIB), (3, 5), (2, 1)]);
    }
}
